"""Curates mutated files and compares every count and every kept byte with an independent reading in plain Python.

    python fuzz.py WORK [--files 2000] [--each 50] [--seed N]

A file is a few JSON lines with random damage: bytes flipped, inserted, removed or repeated, the file cut, fields
removed or of another type, wrong line ends, invalid UTF-8, odd JSON. Every third file is compressed. The seed is drawn
and printed. The independent reading uses Python's `json` and knows nothing of gristmill.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter

MIN_WORDS = 3
WORDS = [
    "grist",
    "mill",
    "stone",
    "water",
    "wheel",
    "flour",
    "Ünïcödé",
    "日本語",
    "naïve",
    "\xa0",
    "\u2028",
    "\t",
    "emoji😀",
    "a",
    "b",
]
ODD = [
    b"NaN",
    b"1e999",
    b"-0",
    b"01",
    b'"\\ud800"',
    b'"\\u0000"',
    b"123456789012345678901234567890",
    b'"\x01"',
    b"[" * 50 + b"]" * 50,
    b"{}",
    b"null",
    b"true",
    b'"\xff"',
    b'"\xc0\x80"',
    b"'single'",
    b"",
]


def record(rng: random.Random, number: int) -> bytes:
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(8)))
    fields: list[tuple[str, Any]] = [("id", number), ("text", text), ("n", rng.random()), ("meta", {"a": [1, None]})]
    rng.shuffle(fields)
    return json.dumps(dict(fields), ensure_ascii=rng.random() < 0.5).encode()


def odd_value(rng: random.Random, data: bytes) -> bytes:
    """One of the fields gets a value that readers disagree about."""
    key = rng.choice([b'"text"', b'"n"', b'"other"'])
    return data.replace(b"{", b"{" + key + b": " + rng.choice(ODD) + b", ", 1)


def flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return (
        data[:at]
        + rng.choice([b"\n", b"\r", b"\r\n", b"\x00", b"\x0b", b"\xef\xbb\xbf", b" ", b'"', b"\\"])
        + data[at:]
    )


def remove(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(20) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[max(0, at - rng.randrange(40)) :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


MUTATIONS: list[Callable[[random.Random, bytes], bytes]] = [odd_value, flip, insert, remove, repeat, cut]


def mutated(rng: random.Random) -> bytes:
    end = rng.choice([b"\n", b"\n", b"\n", b"\r\n"])
    lines = [record(rng, number) for number in range(rng.randrange(12))]
    for _ in range(rng.randrange(4)):
        if lines:
            at = rng.randrange(len(lines))
            lines[at] = rng.choice(MUTATIONS)(rng, lines[at])
    data = end.join(lines) + (end if rng.random() < 0.8 else b"")
    return rng.choice(MUTATIONS)(rng, data) if rng.random() < 0.3 else data


def no_constant(name: str) -> Any:
    raise ValueError(name)


def finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def without_surrogates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Half of a surrogate pair is no text, in a key that is there twice too."""
    for pair in pairs:
        check(pair)
    return dict(pairs)


def check(value: Any) -> None:
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, list | tuple):
        for part in value:
            check(part)


def reading(data: bytes) -> tuple[Counter[str], list[bytes]]:
    """The lines that an independent reader counts in a file, and those that are kept."""
    counts: Counter[str] = Counter(read=0)
    kept = []
    data = data.removeprefix(b"\xef\xbb\xbf")
    for line in data.split(b"\n"):
        if not line.strip(b" \t\r"):
            continue
        counts["read"] += 1
        try:
            value = json.loads(
                line.decode("utf-8"),
                parse_constant=no_constant,
                parse_float=finite,
                object_pairs_hook=without_surrogates,
            )
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            counts["errored"] += 1
        elif len(value["text"].split()) < MIN_WORDS:
            counts["dropped"] += 1
        else:
            counts["kept"] += 1
            kept.append(line.strip(b" \t\r"))
    return counts, kept


def sum_of(counts: dict[str, Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts.values():
        total.update(one)
    return total


def play(folder: Path, output: Path, blocksize: str | None) -> dict[str, Counter[str]]:
    pipeline = Pipeline(
        "fuzz",
        stages=[
            JsonlReader(str(folder), blocksize=blocksize),
            ScoreFilter(WordCountFilter(min_words=MIN_WORDS)),
            JsonlWriter(str(output)),
        ],
    )
    result = pipeline.run(LocalExecutor(config={"view": "off", "num_cpus": 2}))
    assert result.ledger is not None
    return {
        Path(file).name: Counter(read=e.read, kept=e.kept, dropped=e.dropped, errored=e.errored)
        for file, e in result.ledger.files.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--each", type=int, default=50, help="files of one run")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    shutil.rmtree(args.work, ignore_errors=True)
    total: Counter[str] = Counter()
    mismatches = played = 0
    while played < args.files:
        folder, output = args.work / f"in-{played}", args.work / f"out-{played}"
        folder.mkdir(parents=True)
        expected: dict[str, Counter[str]] = {}
        lines: list[bytes] = []
        for number in range(min(args.each, args.files - played)):
            data = mutated(rng)
            packed = number % 3 == 2
            name = f"{number:04d}.jsonl{'.gz' if packed else ''}"
            (folder / name).write_bytes(gzip.compress(data) if packed else data)
            expected[name], kept = reading(data)
            lines += kept
        blocksize = rng.choice([None, None, "100", "1000"])
        counted = play(folder, output, blocksize)
        if blocksize is not None:  # small files share blocks, and accounts
            expected, counted = {"all": sum_of(expected)}, {"all": sum_of(counted)}
        for name in sorted({*expected, *counted}):
            want, have = expected.get(name, Counter()), counted.get(name, Counter())
            if want != have:
                mismatches += 1
                print(f"{folder / name}: expected {dict(want)}, counted {dict(have)}", flush=True)
            total.update(want)
        written = [
            line.strip(b" \t\r")
            for path in sorted(output.glob("part-*"))
            for line in path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
            if line.strip(b" \t\r")
        ]
        if Counter(written) != Counter(lines):
            mismatches += 1
            print(f"{folder}: {len(lines)} lines should be kept as they are, {len(written)} were written", flush=True)
        played += len(list(folder.iterdir()))
    print(f"{played} files, {dict(total)}: {mismatches} mismatches")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
