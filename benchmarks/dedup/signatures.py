"""Sketches on one thread: documents a second against other libraries, and how often similar texts meet, against theory.

python benchmarks/dedup/signatures.py FOLDER [--documents N]

FOLDER holds JSONL files with a field "text". rensa, datasketch and Daft are measured where they are installed. Times
are CPU seconds of the one thread, the best of three; ours are with shingling, theirs with it and, where that can be
told apart, without.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np

from gristmill.kernels.signatures import Sketcher, estimated_jaccard, exact_hashes, jaccards, shingle_sets
from gristmill.kernels.texts import Texts

HASHES = 260
SHORT_CHARS = 100
"""Of short documents: 77 shingles of 24 characters."""
PAIRS = 10_000
SEEDS = {"fast": 10, "classic": 4}
"""Sketches that are made of each pair: the more, the closer to its chance is what is found."""
PEER_DOCUMENTS = 1_000


def say(what: str, **values: Any) -> None:
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": what, **rounded}), flush=True)


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """CPU seconds of this process: of one thread, unless a library starts others."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found)


def speed(what: str, strings: list[str], run: Callable[[], Any], repeats: int = 3, **more: Any) -> None:
    size = sum(len(text.encode()) for text in strings)
    took = seconds(run, repeats)
    rate = {"documents_per_s": round(len(strings) / took), "mb_per_s": round(size / took / 1e6, 1)}
    say(what, documents=len(strings), mean_bytes=round(size / len(strings)), **rate, **more)


def ours(strings: list[str], kind: str) -> None:
    texts = Texts.of(strings)
    some = Texts.of(strings[: len(strings) // 5])
    Sketcher().sketch(some), Sketcher(method="classic").sketch(some), exact_hashes(some)
    speed(f"gristmill, fast, 24 characters, {kind}", strings, lambda: Sketcher().sketch(texts))
    few = Sketcher(method="classic")
    speed(f"gristmill, classic, 24 characters, {kind}", strings[: len(strings) // 5], lambda: few.sketch(some))

    def words() -> None:
        Sketcher(ngrams=5, unit="word").sketch(Texts.of(strings))

    words()
    speed(f"gristmill, fast, 5 words, with copying the strings, {kind}", strings, words)
    speed(f"gristmill, exact hash, {kind}", strings, lambda: exact_hashes(texts))


def characters(text: str) -> list[str]:
    return [text[k : k + 24] for k in range(max(1, len(text) - 23))]


def word_grams(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[k : k + 5]) for k in range(max(1, len(words) - 4))]


def peers(strings: list[str], kind: str) -> None:
    few = strings[:PEER_DOCUMENTS]
    made: dict[str, Callable[[list[str]], Any]] = {}
    try:
        import rensa

        def by_rensa(shingles: list[str]) -> Any:
            sketch = rensa.RMinHash(HASHES, 42)
            sketch.update(shingles)
            return sketch.digest()

        made["rensa RMinHash"] = by_rensa
    except ImportError:
        say("rensa", error="not installed")
    try:
        import datasketch

        def by_datasketch(shingles: list[str]) -> Any:
            sketch = datasketch.MinHash(HASHES, seed=42)
            sketch.update_batch([shingle.encode() for shingle in shingles])
            return sketch.digest()

        made["datasketch MinHash"] = by_datasketch
    except ImportError:
        say("datasketch", error="not installed")
    for name, sketch in made.items():
        some = few if "rensa" in name else few[: PEER_DOCUMENTS // 5]
        for unit, cut in (("24 characters", characters), ("5 words", word_grams)):
            peer(f"{name}, {unit}", sketch, cut, some, kind)
    daft_words(few, kind)


def peer(
    name: str, sketch: Callable[[list[str]], Any], cut: Callable[[str], list[str]], strings: list[str], kind: str
) -> None:
    ready = [cut(text) for text in strings]
    speed(f"{name}, without shingling, {kind}", strings, lambda: [sketch(one) for one in ready])
    speed(f"{name}, with shingling, {kind}", strings, lambda: [sketch(cut(text)) for text in strings])


def daft_words(strings: list[str], kind: str) -> None:
    try:
        import daft
    except ImportError:
        say("daft", error="not installed")
        return
    frame = daft.from_pydict({"text": strings}).collect()
    column = daft.col("text")

    def run() -> None:
        if hasattr(column, "minhash"):
            expression = column.minhash(num_hashes=HASHES, ngram_size=5, seed=42)
        else:
            expression = daft.functions.minhash(column, num_hashes=HASHES, ngram_size=5, seed=42)
        frame.select(expression.alias("minhash")).collect()

    run()
    speed(f"daft minhash, 5 words, with shingling, {kind}", strings, run)


def edited(strings: list[str], random: np.random.Generator) -> list[str]:
    """Each text changed so that of its shingles about half are others at most: single characters, or how it ends."""
    found = []
    for number, text in enumerate(strings):
        chars = list(text)
        places = random.integers(0, len(chars), random.integers(0, max(2, len(chars) // 60))).tolist()
        if number % 2:
            places = list(range(len(chars) - int(random.integers(0, len(chars) // 3 + 1)), len(chars)))
        for place in places:
            chars[place] = chr(97 + (ord(chars[place]) + 1) % 26)
        found.append("".join(chars))
    return found


def recall(strings: list[str], kind: str) -> None:
    """How many pairs share a band, by their true similarity, for each method and by theory."""
    random = np.random.default_rng(21)
    count = min(PAIRS, len(strings))
    texts = Texts.of(strings[:count] + edited(strings[:count], random))
    left = np.arange(count)
    values, edges = shingle_sets(texts)
    true = jaccards(values, edges, left, left + count)
    theory = 1 - (1 - true**13) ** 20
    found = {method: np.zeros(count) for method in SEEDS}
    error: dict[str, list[np.ndarray]] = {method: [] for method in SEEDS}
    for method, seeds in SEEDS.items():
        for seed in range(seeds):
            sketch = Sketcher(method=method, seed=seed).sketch(texts)
            found[method] += (sketch.bands[:, :count] == sketch.bands[:, count:]).any(axis=0) / seeds
            error[method].append(estimated_jaccard(sketch.small[:count], sketch.small[count:]) - true)
    for low in np.arange(0.5, 1.0, 0.05):
        inside = (true >= low) & (true < low + 0.05)
        if inside.sum() < 100:
            continue
        shares = {method: float(hits[inside].mean()) for method, hits in found.items()}
        say(f"recall, {kind}", jaccard=f"{low:.2f}-{low + 0.05:.2f}", pairs=int(inside.sum()),
            theory=float(theory[inside].mean()), **shares)  # fmt: skip
    for method in found:
        say(f"recall, {kind}, all pairs", method=method, pairs=count, shingles=float(np.diff(edges).mean()),
            found=float(found[method].mean()), theory=float(theory.mean()),
            estimate_bias=float(np.mean(error[method])), estimate_error=float(np.std(error[method])))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    given = parser.parse_args()
    long: list[str] = []
    for path in sorted(given.folder.glob("*.jsonl")):
        with path.open() as lines:
            long += [json.loads(line)["text"] for line in lines]
    long = long[: given.documents]
    whole = " ".join(text for text in long[:2000])
    short = [whole[k : k + SHORT_CHARS] for k in range(0, len(whole) - SHORT_CHARS, SHORT_CHARS)][: given.documents]
    for kind, strings in (("long", long), ("short", short)):
        ours(strings, kind)
        peers(strings, kind)
        recall(strings, kind)


if __name__ == "__main__":
    main()
