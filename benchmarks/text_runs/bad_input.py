"""A folder with every kind of bad input, curated: the run completes, and a table shows the result of each case.

python bad_input.py [WORK]
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader

GOOD = b'{"id": "good", "text": "' + b"a good document of some words " * 5 + b'"}\n'


def jsonl_cases() -> dict[str, bytes]:
    """The content of a file for each case: good documents around what is bad."""
    cases = {
        "malformed line": GOOD + b'{"id": "x", "text": "cut\n' + GOOD,
        "not an object": GOOD + b"[1, 2]\n" + GOOD,
        "invalid UTF-8": GOOD + b'{"id": "x", "text": "\xff\xfe bad"}\n' + GOOD,
        "missing text field": GOOD + b'{"id": "x"}\n' + GOOD,
        "text is a number": GOOD + b'{"id": "x", "text": 5}\n' + GOOD,
        "text is null": GOOD + b'{"id": "x", "text": null}\n' + GOOD,
        "empty file": b"",
        "0 documents": b"\n\n  \n",
        "100 MB document": GOOD + b'{"id": "x", "text": "' + b"long " * 20_000_000 + b'"}\n' + GOOD,
        "duplicate keys": GOOD + b'{"id": "x", "text": "first", "text": "' + b"the last wins here " * 9 + b'"}\n',
        "BOM": b"\xef\xbb\xbf" + GOOD + GOOD,
        "CRLF": GOOD.replace(b"\n", b"\r\n") * 3,
        "no newline at the end": GOOD + GOOD.rstrip(b"\n"),
        "other schema": GOOD + b'{"text": "' + b"other fields and types here " * 9 + b'", "id": 7, "n": {"a": [1]}}\n',
        "NUL bytes": GOOD + b"\x00\x00\x00\n" + GOOD,
    }
    return cases


def write_all(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, data in jsonl_cases().items():
        (folder / f"{name.replace(' ', '_')}.jsonl").write_bytes(data)
    many = b"".join(b'{"id": "%d", "text": "%s"}\n' % (i, b"word %d " % i * 30) for i in range(2000))
    packed = gzip.compress(many)
    (folder / "truncated_gzip.jsonl.gz").write_bytes(packed[: len(packed) * 2 // 3])
    (folder / "not_gzip.jsonl.gz").write_bytes(b"\x1f\x8b\x08 this is no gzip stream at all")


def write_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    text = ["a good document of some words " * 5] * 50
    table = pa.table({"id": [str(i) for i in range(50)], "text": text})
    pq.write_table(table, folder / "good.parquet")
    data = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(data[: len(data) // 2])
    (folder / "empty.parquet").write_bytes(b"")
    pq.write_table(table.slice(0, 0), folder / "no_rows.parquet")
    pq.write_table(pa.table({"id": ["1"], "text": pa.array([None], pa.string())}), folder / "null_text.parquet")
    pq.write_table(pa.table({"id": ["1"], "text": [5]}), folder / "text_is_a_number.parquet")
    pq.write_table(pa.table({"id": ["1"]}), folder / "no_text_column.parquet")


def run(source: Path, output: Path, reader: type) -> None:
    pipeline = Pipeline(
        "bad input",
        stages=[reader(str(source)), ScoreFilter(WordCountFilter(min_words=3)), JsonlWriter(str(output))],
    )
    result = pipeline.run(LocalExecutor(config={"view": "off"}))
    assert result.ledger is not None and not result.ledger.problems
    entries: dict[str, list[str]] = {}
    for path in sorted((output / "quarantine").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            entries.setdefault(Path(entry["file"]).name, []).append(f"{entry['position']}: {entry['reason']}")
    print("| file | read | kept | dropped | errored | quarantine (position: reason) |")
    print("|---|---|---|---|---|---|")
    for file, e in sorted(result.ledger.files.items()):
        name = Path(file).name
        told = "; ".join(entries.pop(name, []))
        print(f"| {name} | {e.read} | {e.kept} | {e.dropped} | {e.errored} | {told} |")
    assert not entries, f"in quarantine but not in the ledger: {entries}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", type=Path, default=None, help="a folder for input and output")
    work = parser.parse_args().work or Path(tempfile.mkdtemp())
    write_all(work / "jsonl")
    write_parquet(work / "parquet")
    run(work / "jsonl", work / "out", JsonlReader)
    print()
    run(work / "parquet", work / "out-parquet", ParquetReader)


if __name__ == "__main__":
    main()
