"""The code blocks of README.md and docs/ run, show what they print, and link to pages that exist."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


samples = script("make_samples")
PAGES = samples.pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"\]\(([^)\s]+)\)")
MORE_LINKED_PAGES = [ROOT / "benchmarks/RESULTS.md"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page):
    samples.Page(page).run()


@pytest.mark.parametrize("page", [*PAGES, *MORE_LINKED_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{page.name}: {link}"


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert "make demo" in text and "make test" in text


def test_a_page_whose_output_changed_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo 3 ms one\n17 s two\n```\n")
    with pytest.raises(samples.SampleError, match=r"page\.md:2.*now\n\$ echo 3 ms one\n3 ms one"):
        samples.Page(page).run()
    samples.Page(page).run(write=True)
    assert page.read_text() == "```console\n$ echo 3 ms one\n3 ms one\n```\n"


@pytest.mark.parametrize(
    "block", ["sh\nfalse", "python\n1 / 0", "yaml\n- NoStage", "json\n{", "pycon\n>>> 1\n2", "text\nx"]
)
def test_a_block_that_fails_is_an_error(tmp_path, monkeypatch, block):
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"```{block}\n```\n")
    with pytest.raises(samples.SampleError):
        samples.Page(page).run()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Run it:\n\n    make test\n", "indented"),
        ("~~~sh\nfalse\n~~~\n", "begin a block"),
        ("``` sh\nfalse\n```\n", "no language"),
        ("````sh\nfalse\n````\n", "begin a block"),
        ("```sh\nfalse\n", "no end"),
        ("<!-- not run -->\n```sh\nfalse\n```\n", "needs a reason"),
        ("<!-- notrun: slow -->\n```sh\nfalse\n```\n", "unknown comment"),
        ("<!-- not run: slow -->\nSome text.\n\n```sh\nfalse\n```\n", "no block"),
        ("```sh\ntrue\n```\n<!-- prints: x -->\n", "no block"),
        ("<!-- prints: x -->\n```sh\ntrue\n```\n", "no effect"),
        ('```python title="own.py"\n1 / 0\n```\n\n```sh\ntrue\n```\n', "no later block"),
    ],
)
def test_no_block_is_skipped_silently(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(samples.SampleError, match=message):
        samples.Page(page).run()


def test_lists_may_have_indented_paragraphs(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("1. One.\n\n    More about it.\n\n    ```sh\n    true\n    ```\n\n::: module\n\n    options:\n")
    samples.Page(page).run()


@pytest.mark.skipif(
    sys.version_info[:2] != samples.MADE_WITH, reason="the blocks run, but their output is compared on Python 3.11 only"
)
def test_output_is_compared_with_the_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(samples.SampleError, match="the output is now"):
        samples.Page(page).run()
