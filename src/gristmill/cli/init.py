"""``gristmill init``: an example pipeline, and a small corpus for it: texts that come with Python, and junk."""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gristmill.cli.target import UsageError

EXAMPLE = """\
# A pipeline: documents flow through the stages from top to bottom.
#
#     gristmill run {file}                  runs it; run it again after a crash to resume
#     gristmill run {file} --dry-run        shows what would run
#     gristmill run {file} --set gopher-quality.word_count.min_words=20
#     gristmill stages                      lists all stages, gristmill stages NAME documents one

name: clean
description: keeps what reads like text, and redacts personal data

stages:
  # Where documents come from: a file, a folder, a pattern, a list of them, or a URL such as s3://bucket/folder.
  # Relative paths begin at the folder of this file.
  # Large files are read in blocks by several workers; blocksize: 64MB sets their size.
  - JsonlReader:
      file_paths: input/

  # Published rules by name. A threshold can be changed, and a rule can be skipped:
  #   - recipe: {{name: gopher-quality, set: {{word_count.min_words: 20, stop_words: false}}}}
  - recipe: gopher-quality
  - recipe: gopher-repetition

  # A single filter, with its score in a field. 'name' is its name in the ledger.
  - ScoreFilter:
      filter_obj: {{LongWordFilter: {{max_word_length: 100}}}}
      score_field: longest_word
    name: no_long_words

  # Changes to the remaining texts.
  - Modify:
      modifier_fn: [NewlineNormalizer, PiiRedactor]

  # The kept documents. The dropped ones are in excluded/ beside them, with the rule and the score.
  - JsonlWriter:
      path: output/
"""


def init(path: str, images: bool = False, videos: bool = False) -> list[str]:
    """Write the example and its input to a folder. Return messages. Nothing is overwritten.

    ``images``, ``videos``: an example with these instead of texts.
    """
    if images and videos:
        raise UsageError("an example has images or videos: give --images or --video, not both")
    folder = Path(path)
    file = folder / "pipeline.yaml"
    if folder.suffix in (".yaml", ".yml"):
        folder, file = folder.parent, folder
    source = folder / "input"
    for there in (file, source):
        if there.exists():
            raise UsageError(f"{there} exists already; nothing was written. Name another folder: gristmill init NAME")
    if images and find_spec("PIL") is None:
        raise UsageError("the example draws images with Pillow, which is missing: pip install 'gristmill[image]'")
    if videos and find_spec("av") is None:
        raise UsageError("the example encodes videos with PyAV, which is missing: pip install 'gristmill[video]'")
    try:
        source.mkdir(parents=True)
        example, what = (_images if images else _videos if videos else _texts)(source)
        file.write_text(example.format(file=file.as_posix()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return [f"wrote {file}", f"wrote {what}", f"run it: gristmill run {file}"]


def _texts(source: Path) -> tuple[str, str]:
    documents, size = write_sample(source)
    what = f"{documents} documents ({size / 1e6:.1f} MB) into {source}/: texts that come with Python, and some junk"
    return EXAMPLE, what


def _images(source: Path) -> tuple[str, str]:
    from gristmill.cli import init_images

    images, size = init_images.write_images(source)
    what = f"{images} images ({size / 1e6:.1f} MB) with captions into {source}/: drawn shapes, copies, and some junk"
    return init_images.EXAMPLE, what


def _videos(source: Path) -> tuple[str, str]:
    from gristmill.cli import init_videos

    made = init_videos.write_videos(source)
    what = f"{made.videos} videos ({made.size / 1e6:.1f} MB) into {source}/: {made.origin}, and some junk"
    return init_videos.EXAMPLE, what


MODULES = (
    *("argparse", "ast", "bdb", "calendar", "codecs", "collections", "configparser", "contextlib", "copy", "csv"),
    *("dataclasses", "datetime", "decimal", "difflib", "doctest", "enum", "fractions", "ftplib", "functools", "glob"),
    *("gettext", "heapq", "imaplib", "inspect", "ipaddress", "locale", "logging", "mailbox", "mimetypes", "numbers"),
    *("optparse", "os", "pathlib", "pdb", "pickle", "pickletools", "platform", "poplib", "pprint", "queue", "random"),
    *("re", "sched", "shelve", "shlex", "shutil", "smtplib", "socket", "socketserver", "ssl", "statistics", "string"),
    *("subprocess", "tarfile", "tempfile", "textwrap", "threading", "timeit", "tokenize", "trace", "traceback"),
    *("turtle", "typing", "unittest", "uuid", "warnings", "weakref", "xml", "zipfile", "zipimport"),
)
LEAST_WORDS = 40
FILES = 2


def write_sample(folder: Path) -> tuple[int, int]:
    """Write the corpus as JSON lines. Return the number of documents and bytes."""
    documents = list(_documents())
    size = 0
    for number in range(FILES):
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in documents[number::FILES]]
        data = "".join(lines).encode()
        (folder / f"sample-{number}.jsonl").write_bytes(data)
        size += len(data)
    return len(documents), size


def _documents() -> Iterator[dict[str, str]]:
    """Yield the texts with junk between them, always at the same places."""
    junk = list(_junk())
    texts = [*_topics(), *_docstrings(), *_licence()]
    every = max(1, len(texts) // max(1, len(junk)))
    for number, (source, text) in enumerate(texts):
        if number % every == 0 and junk:
            what, bad = junk.pop(0)
            yield {"id": f"junk-{number:04}", "text": bad, "source": what}
        yield {"id": f"doc-{number:04}", "text": text, "source": source}


def _topics() -> Iterator[tuple[str, str]]:
    """Yield the chapters of the language reference that ``help()`` shows."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave them out
        return
    for name in sorted(topics):
        yield f"help('{name}')", topics[name]


def _docstrings() -> Iterator[tuple[str, str]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for name in MODULES:
        path = next((p for p in (library / f"{name}.py", library / name / "__init__.py") if p.is_file()), None)
        if path is None:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text.split()) >= LEAST_WORDS:
                    yield f"{name}.{'__doc__' if isinstance(node, ast.Module) else node.name}", text


def _licence() -> Iterator[tuple[str, str]]:
    path = Path(sysconfig.get_paths()["stdlib"]) / "LICENSE.txt"
    if path.is_file():
        yield "licence", path.read_text("utf-8", "replace")


def _junk() -> Iterator[tuple[str, str]]:
    """Yield one or more documents for each kind of junk that the rules drop."""
    yield "empty", ""
    yield "blank", " \n\t\n "
    yield "too short", "Page not found."
    yield "menu", "\n".join(["Home", "About us", "Products", "Contact", "Log in", "Basket (0)"] * 12)
    yield "repeated line", "\n".join(["Click here to subscribe to our newsletter and never miss a post."] * 40)
    yield "repeated paragraph", "\n\n".join(["We use cookies so that you have the best time on this site. OK?"] * 20)
    yield "repeated words", " ".join(["buy cheap watches online now"] * 60)
    yield "symbols", " ".join(f"#tag{i} # ... #" for i in range(80))
    yield "bullets", "\n".join(f"- item number {i} of the list, with some words to it" for i in range(40))
    yield "ellipses", "\n".join(f"And then the story number {i} wandered on and on and on ..." for i in range(30))
    yield "numbers", " ".join(str(i * 7919 % 100_003) for i in range(400))
    yield "one long word", "x" * 4000
    yield "long words", " ".join("supercalifragilistic" * 2 for _ in range(120))
    yield (
        "no English",
        " ".join(["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "elit"][i % 7] for i in range(90)),
    )
    yield "letters", " ".join("abcdefghijklmnop" * 12)
    yield "hex", "\n".join(f"{i * 2654435761 % 2**32:08x} {i * 40503 % 2**16:04x}" for i in range(200))
    people = [("Ada", "ada.lovelace@example.org", "+44 20 7946 0018"), ("Carl", "gauss@example.net", "+49 30 901820")]
    for name, mail, phone in people:
        yield (
            "personal data",
            f"Dear reader, if you have questions about the meeting of the society that will be held in the old hall, "
            f"please write to {name} at {mail} or call {phone} before the end of the month. The programme has been "
            f"sent to all the members with the minutes of the last meeting, and it will also be on the board in the "
            f"library, where the secretary can be found on most mornings of the week.\n\n\n\n\nThe server at 8.8.8.8 "
            f"has a copy of the talks that have been given so far.",
        )
