"""Takes paragraphs of English prose out of documentation: HTML, XML, man pages and plain text."""

from __future__ import annotations

import gzip
import hashlib
import html
import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

INSTALLED = ("/usr/share/doc", "/usr/share/man/man1", "/usr/share/man/man8", "/usr/share/perl", "/usr/share/vim")
NAME = re.compile(r"\.(html?|xml|xhtml|txt|rst|md|pod|texi|info|dict\.dz|dict|\d)(\.gz)?$")
LARGEST = 6_000_000

ELEMENT = re.compile(r"<(?:p|dd|li)\b[^>]*>(.*?)</(?:p|dd|li)>", re.S | re.I)
TAG = re.compile(r"<[^>]+>")
MAN_MARKUP = re.compile(r"\\f.|\\-|^\.[A-Za-z]+ ?", re.M)
BLANK_LINE = re.compile(r"\n\s*\n")
SPACE = re.compile(r"\s+")

PLAIN_WORD = re.compile(r"^[A-Za-z][a-z'-]*[.,;:?!)]*$")
COMMON = frozenset(("the", "of", "and", "to", "in", "is", "a", "that", "for", "with", "be", "as", "it"))


def write_pool(packages: Path, extracted: Path, pool: Path) -> None:
    """Unpack the packages and write each paragraph of prose, once, as a line."""
    extracted.mkdir(parents=True, exist_ok=True)
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(extracted)], check=False, stderr=subprocess.DEVNULL)
    seen: set[bytes] = set()
    part = pool.with_suffix(".part")
    with part.open("w", encoding="utf-8") as out:
        for path in documentation(str(extracted), *INSTALLED):
            for paragraph in paragraphs(path):
                if is_prose(paragraph):
                    digest = hashlib.blake2b(paragraph.lower().encode(), digest_size=8).digest()
                    if digest not in seen:
                        seen.add(digest)
                        out.write(paragraph + "\n")
    part.rename(pool)  # a pool is whole or not there
    print(f"{len(seen):,} paragraphs", flush=True)


def documentation(*roots: str) -> Iterator[str]:
    """The files that may hold prose, in an order that does not depend on the file system."""
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                wanted = NAME.search(name) or "README" in name or "NEWS" in name
                if wanted and not os.path.islink(path):
                    yield path


def paragraphs(path: str) -> Iterator[str]:
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            text = file.read(LARGEST).decode("utf-8", "ignore")
    except (OSError, EOFError, ValueError, zlib.error):
        return
    if path.removesuffix(".gz").endswith((".html", ".htm", ".xml", ".xhtml")):
        for element in ELEMENT.finditer(text):
            yield SPACE.sub(" ", html.unescape(TAG.sub("", element.group(1)))).strip()
    else:
        for block in BLANK_LINE.split(MAN_MARKUP.sub("", text)):
            yield SPACE.sub(" ", block).strip()


def is_prose(paragraph: str) -> bool:
    """ASCII, 120 to 1,500 characters, 20 words or more, mostly plain words, an eighth of them common ones."""
    if not 120 <= len(paragraph) <= 1500:
        return False
    words = paragraph.split()
    if len(words) < 20:
        return False
    plain = sum(bool(PLAIN_WORD.match(word)) for word in words)
    common = sum(word.lower() in COMMON for word in words)
    return plain >= 0.75 * len(words) and common >= 0.12 * len(words) and paragraph.isascii()
