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
MORE_LINKED_PAGES = [ROOT / "benchmarks/RESULTS.md", ROOT / "deploy/README.md"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page):
    samples.Page(page).run()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_code_is_in_fenced_blocks_that_run_or_give_a_reason(page):
    text = page.read_text(encoding="utf-8")
    for block in (part for part in samples.parts_of(text) if isinstance(part, samples.Block)):
        where = f"{page.name}:{block.line + 1}"
        assert block.language in samples.RUNNABLE or block.marks.get("not run"), f"{where}: neither runs nor says why"
        assert block.marks.get("not run", "a reason"), f"{where}: `not run` needs a reason"


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
