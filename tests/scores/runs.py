"""Small corpora whose documents are around the thresholds of rules, and pipelines with many rules."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from gristmill.stages.text.filters import (
    BulletsFilter,
    Filter,
    MeanWordLengthFilter,
    Score,
    ScoreFilter,
    WordCountFilter,
)
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.stages.text.modifiers import Modify, UrlRemover
from gristmill.stages.text.recipes import recipe
from tests.stages.deduplication.corpora import execute

WORDS = (
    "the",
    "of",
    "and",
    "to",
    "be",
    "that",
    "mill",
    "grain",
    "flour",
    "stone",
    "wheel",
    "123",
    "x",
    "https://a.b/c",
)


def document(rng: random.Random, number: int) -> dict[str, Any]:
    lines = []
    for _ in range(rng.randint(1, 8)):
        start = rng.choice(["", "", "- ", "* "])
        lines.append(
            start + " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 30))) + rng.choice(["", ".", "..."])
        )
    if rng.random() < 0.3:
        lines += [rng.choice(lines)] * rng.randint(1, 6)
    return {
        "id": f"doc-{number}",
        "text": "\n".join(lines),
        "n": rng.randint(0, 100),
        "url": f"https://s{number % 7}.org/",
    }


def corpus(folder: Path, rng: random.Random, documents: int = 240, files: int = 3) -> Path:
    """Write JSONL files, with some malformed lines."""
    folder.mkdir(parents=True)
    for number in range(files):
        lines = [json.dumps(document(rng, number * documents + k)) for k in range(documents // files)]
        lines[3] = '{"id": "broken'
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def stages(
    source: Path, out: Path, sets: dict[str, dict[str, Any]] | None = None, parquet: bool = False, **writer: Any
) -> list[Any]:
    """Rules before and after a modifier, an inverted rule, a rule on a stored score, and rules of recipes."""
    sets = sets or {}
    words = {"min_words": 8, "max_words": 400, **sets.get("ScoreFilter.word_count", {})}
    length = {"min_mean_word_length": 1.5, "max_mean_word_length": 12, **sets.get("ScoreFilter.mean_word_length", {})}
    bullets = {"max_bullet_lines_ratio": 0.05, **sets.get("ScoreFilter (2).bullet_ratio", {})}
    stored = {"min_words": 9, "max_words": 90, **sets.get("Filter.word_count", {})}
    kind = ParquetWriter if parquet else JsonlWriter
    return [
        JsonlReader(str(source), blocksize=9000),
        ScoreFilter([WordCountFilter(**words), MeanWordLengthFilter(**length)], keep_scores=True),
        recipe("gopher-quality", set=sets.get("gopher-quality", {"word_count.min_words": 10})),
        Modify(UrlRemover()),
        Score(WordCountFilter(), score_field="words_left"),
        Filter(WordCountFilter(**stored), "words_left"),
        ScoreFilter([BulletsFilter(**bullets), WordCountFilter(5, 300)], invert=[True, False]),
        recipe("gopher-repetition", set=sets.get("gopher-repetition")),
        kind(str(out), **writer),
    ]


def run(
    source: Path, out: Path, sets: dict[str, dict[str, Any]] | None = None, parquet: bool = False, **writer: Any
) -> Any:
    return execute(*stages(source, out, sets, parquet, **writer), allow_empty=True)


def funnel(out: Path) -> tuple[int, list[list[Any]]]:
    """Documents kept, and dropped by stage and reason."""
    total = json.loads((out / "_gristmill" / "ledger.json").read_text())["total"]
    return total["kept"], sorted(total["dropped"])
