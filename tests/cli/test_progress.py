"""The display of a run while a block is being processed, and the text that Ctrl-C prints.

These are real runs with a filter that waits at one document until a file is there: nothing depends on speed.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

GATES = '''
import os
import time

from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter


@register
class GateFilter(DocumentFilter):
    """Waits at the document that says "wait", until a file is there."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def score_document(self, text: str) -> int:
        give_up = time.monotonic() + 300
        while "wait" in text and not os.path.exists(self.gate) and time.monotonic() < give_up:
            time.sleep(0.01)
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score % 2 == 0
'''
PIPELINE = """\
imports: [gates]
executor: {local: {num_cpus: 2, logging_interval: 0.1}}
stages:
  - JsonlReader: {file_paths: input/, blocksize: 10KB}
  - ScoreFilter: {filter_obj: {GateFilter: {gate: %s/go}}}
  - JsonlWriter: {path: output/}
"""
BLOCKS = 12
NUMBER = r"([\d,]*[1-9][\d,]*)"
IN_A_BLOCK = {
    "lines": rf"0/1 blocks \(([1-9]\d*)%\)[^\n]* {NUMBER}(?: documents)? read, {NUMBER} kept",
    "live": rf"0/1 blocks \(([1-9]\d*)%\)[^\n]*\n\r?input +{NUMBER} documents read · {NUMBER} kept",
}


def texts(count: int, wait_at: int) -> list[str]:
    return ["a" * (100 + i % 2) + str(i).zfill(6) + ("wait" if i == wait_at else "") for i in range(count)]


def lines_of(documents: list[str]) -> str:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(documents))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gates.py").write_text(GATES)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE % tmp_path)
    (tmp_path / "input").mkdir()
    return tmp_path


def one_block(folder: Path) -> None:
    """A compressed file: one block, read in many batches. The last one waits."""
    documents = texts(2000, 1999)
    (folder / "input" / "a.jsonl.gz").write_bytes(gzip.compress(lines_of(documents).encode()))


def many_blocks(folder: Path) -> None:
    """Files that are a block each; the fifth waits."""
    for number in range(BLOCKS):
        (folder / "input" / f"{number:02}.jsonl").write_text(lines_of(texts(70, 69 if number == 4 else -1)))


@contextlib.contextmanager
def running(folder: Path, *options: str, columns: int = 80) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """A run on a terminal of its own; gives the process and what it prints, piece by piece."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "gristmill", "run", "pipeline.yaml", *options]
    environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)

    def pieces() -> Iterator[str]:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            yield data.decode("utf-8", "replace")

    try:
        yield process, pieces()
    finally:
        (folder / "go").touch()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(100)
        os.close(ours)


def until(pieces: Iterator[str], pattern: str) -> re.Match[str]:
    """Wait until what is printed matches."""
    seen = ""
    for piece in pieces:
        seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", piece)
        if found := re.search(pattern, seen):
            return found
    raise AssertionError(f"{pattern!r} was not printed:\n{seen[-4000:]}")


@pytest.mark.parametrize("view", ["live", "lines"])
def test_documents_inside_a_block_are_counted_while_it_is_read(folder, view):
    one_block(folder)
    with running(folder, "--view", view) as (process, pieces):
        percent, read, kept = (int(n.replace(",", "")) for n in until(pieces, IN_A_BLOCK[view]).groups())
        assert percent <= 100 and 2000 >= read >= kept
        (folder / "go").touch()
        until(pieces, r"1/1 blocks \(100%\)")
        until(pieces, r"kept +1,000 ")
        assert process.wait(100) == 0


def test_a_row_group_of_a_parquet_file_is_a_block_that_moves_too(folder):
    table = pa.table({"id": list(range(2000)), "text": texts(2000, 1999)})
    pq.write_table(table, folder / "input" / "a.parquet", row_group_size=2000, use_dictionary=False)
    text = (folder / "pipeline.yaml").read_text().replace("JsonlReader", "ParquetReader")
    (folder / "pipeline.yaml").write_text(text)
    with running(folder, "--view", "lines") as (_, pieces):
        percent, read, kept = (int(n.replace(",", "")) for n in until(pieces, IN_A_BLOCK["lines"]).groups())
        assert percent <= 100 and 2000 >= read >= kept


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal(folder, columns):
    one_block(folder)
    with running(folder, "--view", "lines", columns=columns) as (_, pieces):
        shown = until(pieces, r"(?s)(gristmill 0:\d\d, .*\n){3}")[0]
        assert max(len(line.rstrip("\r")) for line in shown.splitlines()) <= columns


@pytest.mark.parametrize("barrier", [False, True])
def test_ctrl_c_says_how_many_blocks_are_done_and_the_next_run_does_the_rest(folder, barrier):
    many_blocks(folder)
    if barrier:
        text = (
            (folder / "pipeline.yaml").read_text().replace("  - JsonlWriter", "  - ExactDeduplication\n  - JsonlWriter")
        )
        (folder / "pipeline.yaml").write_text(text)
    with running(folder, "--view", "lines") as (process, pieces):
        until(pieces, rf"([3-9]|1\d)/{BLOCKS} blocks")
        process.send_signal(signal.SIGINT)
        where = " at the keys of ExactDeduplication" if barrier else ""
        words = rf"interrupted{where}: (\d+) of {BLOCKS} blocks are done. Run the same command to resume."
        done = int(until(pieces, words.replace(" ", r"\s+"))[1])
        assert process.wait(100) == 130
    assert 3 <= done < BLOCKS
    again = subprocess.run(
        [sys.executable, "-m", "gristmill", "run", "pipeline.yaml", "--view", "off"],
        cwd=folder, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    if not barrier:
        assert f"{done} of {BLOCKS} blocks by earlier runs" in again.stdout
        kept = sum(len(part.read_text().splitlines()) for part in (folder / "output").glob("part-*.jsonl"))
        assert kept == BLOCKS * 35


def test_the_pass_that_verifies_similarities_counts_its_own_blocks(folder):
    stages = "  - JsonlReader: {file_paths: input/, blocksize: 10KB}\n  - FuzzyDeduplication: {verify: true}\n"
    (folder / "pipeline.yaml").write_text(f"stages:\n{stages}  - JsonlWriter: {{path: output/}}\n")
    for number in range(4):
        documents = [f"{i} ".zfill(9) * 40 + str(number) for i in range(30)]
        (folder / "input" / f"{number}.jsonl").write_text(lines_of(documents))
    done = subprocess.run(
        [sys.executable, "-m", "gristmill", "run", "pipeline.yaml", "--view", "lines"],
        cwd=folder, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = re.findall(r"(\d+)/(\d+) blocks \(100%\), finished", done.stderr)
    assert len(ended) == 3 and all(blocks == total for blocks, total in ended), done.stderr
