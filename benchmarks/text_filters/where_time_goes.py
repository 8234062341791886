"""Where the time of one worker goes: the stages of the job one after the other in this process, in CPU seconds.

    python benchmarks/text_filters/where_time_goes.py bench-work --docs 200k

A rule pays for what it is the first to ask for: word_count splits the words, bullets the lines, top_2_gram counts all
n-grams. What the engine does between stages (ids, ledger, commits) and the documents in ``excluded/`` are not in it;
the difference to a run with one worker is what they cost.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.recipes import recipe

GOPHER = ("gopher-quality", "gopher-repetition")
DROPPING = "taking out what is dropped"
Clock = Callable[[str], AbstractContextManager[None]]


def timed(function: Callable[..., Any], clock: Clock, name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed_function(*args: Any) -> Any:
        with clock(name):
            return function(*args)

    return timed_function


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder with the corpus")
    parser.add_argument("--docs", choices=("20k", "200k"), default="20k")
    parser.add_argument("--recipes", nargs="+", default=GOPHER)
    args = parser.parse_args()
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def clock(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        seconds[name] += time.process_time() - began

    with tempfile.TemporaryDirectory(dir=args.work) as out:
        first = JsonlReader(str(args.work / f"c{args.docs}"))
        last = JsonlWriter(out, excluded=False)
        rules = [recipe(name) for name in args.recipes]
        blocks = first.source() or []
        reader = first.linked([], [*rules, last])
        writer = last.linked([reader, *rules], [])
        with clock("loading, once"):
            for stage in (reader, *rules, writer):
                stage.preload()
        for stage in rules:
            for one in stage.rules:
                if isinstance(one, DocumentFilter):
                    one.score_batch = timed(one.score_batch, clock, one.name)
        documents = kept = 0
        for block in blocks:
            with clock("read"):
                batch = reader.process(block)
            documents += batch.num_items
            before = sum(seconds.values())
            began = time.process_time()
            for stage in rules:
                batch = stage.process(batch)
            scoring = sum(seconds.values()) - before
            seconds[DROPPING] += time.process_time() - began - scoring
            kept += batch.num_items
            with clock("write"):
                writer.process(batch)
    loading = seconds.pop("loading, once")
    whole = sum(seconds.values())
    print(
        f"{documents:,} documents, {kept:,} kept, {whole:.2f} CPU s, {documents / whole:,.0f} documents/s on one core"
    )
    print(f"(loading, once: {loading:.2f} s)\n")
    print("| | CPU s | share | us per document |\n|---|---|---|---|")
    for name, spent in seconds.items():
        print(f"| {name} | {spent:.2f} | {spent / whole:.0%} | {spent / documents * 1e6:.2f} |")


if __name__ == "__main__":
    main()
