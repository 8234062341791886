"""The page of reports: hostile text, bounded size, phones, print, both colour schemes."""

from __future__ import annotations

import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.runs import page_of, record_of, text_of, write_documents

from gristmill import Pipeline
from gristmill.report.page.page import MOST_BYTES
from gristmill.report.page.page import page_of as rendered
from gristmill.report.page.text import escaped, excerpt
from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication
from gristmill.stages.text.filters import DocumentFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter

SCRIPT = "<script>document.title='owned';alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
ATTRIBUTE = '"\'><svg onload=alert(3)><a href="javascript:alert(4)">'
BIDI = "access \u202e\u2066 level\u2069\u2066 user \u200b\u00ad\ufeff \x00\x1b[31m red \ue000 \U000e0041"
HOSTILE = [
    SCRIPT,
    ATTRIBUTE,
    BIDI,
    "</pre></section></body></html>",
    "x" * 10_000_000,
    "\u202e" * 5_000,
    "\ud83d",
    "]]>--><!--",
]


class Names(DocumentFilter):
    """Drops all documents that are hostile, for a reason that is hostile too."""

    name = "names " + SCRIPT

    def score_document(self, text: str) -> float:
        return float(len(text) % 97)

    def keep_document(self, score: float) -> bool:
        return score > 60

    def reasons(self, scores):
        return [f"{ATTRIBUTE} {BIDI} {score}" for score in scores]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """The output of a run over hostile documents, with hostile names, reasons, ids and file names."""
    folder = tmp_path_factory.mktemp("hostile")
    random_ = random.Random(1)
    documents = [{"id": f"{ATTRIBUTE}{i}", "text": text} for i, text in enumerate(HOSTILE * 3)]
    documents += [{"id": i, "text": text_of(random_, 70)} for i in range(40)]
    (folder / "in").mkdir()
    lines = [json.dumps(one) for one in documents]
    lines[5:5] = ['{"broken ' + SCRIPT, "[" + json.dumps(BIDI) + "]"]
    (folder / "in" / "a<b>&'\".jsonl").write_text("\n".join(lines) + "\n")
    stages = [
        JsonlReader(str(folder / "in")),
        ScoreFilter(Names()).with_(name=SCRIPT),
        FuzzyDeduplication(),
        JsonlWriter(str(folder / "out")),
    ]
    Pipeline(SCRIPT, description=ATTRIBUTE, stages=stages).run(report=True)
    return folder / "out"


def test_hostile_documents_are_shown_and_do_nothing(hostile, open_page):
    opened = open_page(page_of(hostile))
    assert opened.page.title() == f"{SCRIPT}: report"
    assert opened.page.query_selector("section img, section svg[onload], section a, section script, main") is None
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = opened.text("#scores") + opened.text("#duplicates") + opened.text("#quarantine")
    assert "<script>document.title='owned'" in shown
    assert "U+202E" in shown
    assert re.search("[\u202a-\u202e\u2066-\u2069\u200b\x1b\x00\ufeff]", opened.text()) is None
    assert opened.page.evaluate("document.body.querySelectorAll('section').length") == 9
    assert page_of(hostile).stat().st_size < MOST_BYTES


def test_a_script_that_gets_through_would_not_run(hostile, open_page, tmp_path):
    page = page_of(hostile).read_text("utf-8")
    (tmp_path / "a.html").write_text(page.replace("</h1>", "</h1><script>document.title='owned'</script>", 1))
    opened = open_page(tmp_path / "a.html")
    assert opened.page.title() == f"{SCRIPT}: report"
    assert any("Content Security Policy" in message for message in opened.messages)
    opened.messages.clear()


def test_the_page_asks_for_nothing(hostile):
    class Links(HTMLParser):
        found: list[str] = []

        def handle_starttag(self, tag, attrs):
            Links.found += [
                f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "style", "srcset")
            ]
            assert tag not in ("link", "img", "iframe", "object", "form", "base")

    Links().feed(page_of(hostile).read_text("utf-8"))
    assert [one for one in Links.found if not one.startswith("a href=#")] == []


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_phones_and_screens_in_both_schemes(hostile, open_page, width, scheme):
    opened = open_page(page_of(hostile), width, scheme)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}[scheme]


def test_what_is_folded_is_printed(hostile, open_page):
    opened = open_page(page_of(hostile))
    opened.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<details><summary>a</summary>hidden</details>')"
    )
    opened.page.pdf()
    assert opened.page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")


def test_a_page_of_any_record_stays_small():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)

    def bad(length: int) -> str:
        return "".join(random_.choice("\u202e\u2066<&\n a\x00\U000e0041") for _ in range(length))

    example = {"text": bad(500), "characters": 500, "id": bad(300), "reason": bad(300), "side": "dropped", "score": 0.5}
    rule = {"stage": bad(200), "rule": bad(200), "dropped": {"read": 9, "examples": [example] * 3}}
    place = {"file": bad(500), "position": 1, "stage": bad(300)}
    failure = {"stage": "s", "task": "t", "error": bad(2000), "detail": bad(6000), "story": [bad(500)] * 20}
    data = {
        "state": "finished",
        "name": bad(200),
        "plans": [],
        "excluded": {"read": 1, "files": 1, "files_total": 1, "rules": [rule] * 100},
        "quarantine": [{"reason": bad(500), "examples": [example | place] * 3}] * 20,
        "failures": [failure] * 20,
        "messages": [bad(2000)] * 100,
        "pipeline": bad(100_000),
        "documents": {
            **{"read": 1, "made": 0, "kept": 1, "merged": 0, "dropped": [[bad(200), bad(300), 1]] * 300},
            **{"errored": [[bad(2000), 1]] * 300},
        },
    }
    assert len(rendered(data)) < 2_000_000


def test_the_number_of_documents_does_not_change_the_size(tmp_path):
    sizes = []
    for count in (200, 4_000):
        folder = tmp_path / str(count)
        random_ = random.Random(2)
        made = ({"id": f"d{i:06}", "text": text_of(random_, random_.randrange(5, 60))} for i in range(count))
        write_documents(folder / "in", made, files=8)
        stages = [JsonlReader(str(folder / "in")), ScoreFilter(WordCountFilter(30)), JsonlWriter(str(folder / "out"))]
        Pipeline("p", stages=stages).run(report=True)
        assert record_of(folder / "out")["documents"]["read"] == count
        sizes.append(page_of(folder / "out").stat().st_size)
    assert sizes[1] < sizes[0] * 1.3


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a < b & 'c' \"d\"", "a &lt; b &amp; &#39;c&#39; &quot;d&quot;"),
        ("a\u202eb", "a<u>U+202E</u>b"),
        ("\u200b" * 9, "<u>U+200B U+200B U+200B and 6 more</u>"),
        ("naïve 漢字 עברית 👍", "naïve 漢字 עברית 👍"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m", "<u>U+001B</u>[31m"),
        ("\ud83d", "<u>U+D83D</u>"),
    ],
)
def test_text_is_escaped_and_hidden_characters_are_named(text, html):
    assert escaped(text) == html


def test_an_excerpt_is_short():
    assert excerpt("line\n" * 100, 500).count("\n") == 11
    assert "… 5,000 characters" in excerpt("x" * 500, 500, 5_000)
    assert excerpt("whole", 500) == "<pre>whole</pre>"
    assert len(excerpt("\u202e<" * 250, 500)) < 4_000
