"""The whole page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from gristmill.report.page import account, contents, speed
from gristmill.report.page.style import SCRIPT, STYLE
from gristmill.report.page.text import escaped
from gristmill.report.place import Data
from gristmill.report.record import THUMBNAIL, cut

MOST_BYTES = 1_900_000
"""A larger page is made again with fewer examples."""
CHOICES = ((3, None), (1, None), (0, None), (0, 300), (0, 60))
"""Examples of each kind, and the longest text, from the first choice to the last."""

Section = tuple[str, str, Callable[[Data, int], Iterator[str]]]
SECTIONS: tuple[Section, ...] = (
    ("advice", "Advice", lambda data, n: account.advice(data)),
    ("funnel", "Documents by stage and reason", lambda data, n: account.funnel(data)),
    ("stages", "Time by stage", lambda data, n: speed.stages(data)),
    ("time", "Over time", lambda data, n: speed.over_time(data)),
    (
        "scores",
        "Scores and thresholds",
        lambda data, n: chain(contents.scores(data, n), contents.kept(data, n)),
    ),
    ("duplicates", "Duplicates", lambda data, n: contents.duplicates(data, n)),
    ("quarantine", "Quarantine", lambda data, n: contents.quarantine(data, n)),
    ("failures", "Failures and warnings", lambda data, n: contents.failures(data)),
    ("configuration", "Configuration", lambda data, n: contents.configuration(data)),
)


def page_of(data: Data) -> bytes:
    """Return the page of a report: below 2 MB, with fewer examples if there would be too many."""
    for examples, longest in CHOICES:
        shown = data if longest is None else shortened(data, longest)
        page = "".join(_parts(shown, examples)).encode("utf-8", "replace")
        if len(page) <= MOST_BYTES:
            break
    return page


def shortened(value: Any, longest: int) -> Any:
    """Return plain values with shorter texts, and without thumbnails."""
    if isinstance(value, str):
        return cut(value, longest)
    if isinstance(value, dict):
        return {key: shortened(inner, longest) for key, inner in value.items() if key != THUMBNAIL}
    return [shortened(inner, longest) for inner in value] if isinstance(value, list) else value


def _parts(data: Data, examples: int) -> Iterator[str]:
    title = escaped(f"{data.get('name') or 'run'}: report")
    made = [(name, head, "".join(section(data, examples))) for name, head, section in SECTIONS]
    made = [one for one in made if one[2]]
    yield from document_head(title)
    yield from account.summary(data)
    yield "<nav>" + "".join(f'<a href="#{name}">{head}</a>' for name, head, _ in made) + "</nav>"
    for name, head, body in made:
        yield f'<section id="{name}"><h2>{head}</h2>{body}</section>'
    version = escaped(data.get("gristmill") or "")
    yield f'<p class="soft small">gristmill {version}. The figures are in report.json beside this page.</p>'
    yield "</body></html>\n"


def document_head(title: str) -> Iterator[str]:
    """Yield the beginning of a page.

    Its policy allows this style sheet, this script and pictures inside the page, and nothing from elsewhere.
    """
    allowed = f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; img-src data:"
    policy = f"{allowed}; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f"<script>{SCRIPT}</script></head><body>"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
