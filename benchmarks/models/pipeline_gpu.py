"""A whole pipeline on one GPU: JSONL, heuristic filters, tokens, model, JSONL, with the balancer on.

    python benchmarks/models/pipeline_gpu.py prepare WORK --text sotu.txt.gz --tokenizer FOLDER --documents 700000
    python benchmarks/models/pipeline_gpu.py run WORK deberta
    python benchmarks/models/pipeline_gpu.py run WORK deberta --batch-mode

`prepare` makes documents of 291 tokens on average, at most 512, of slices of real text, and checkpoints with the shape
of DeBERTa-v3-base and MiniLM with random weights. `run` prints documents per second between the first and the last
tenth of the documents, what NVML says of the GPU in that time, and the workers of each step.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from models.texts import slices


def prepare(arguments: argparse.Namespace) -> None:
    work: Path = arguments.work
    shutil.rmtree(work / "input", ignore_errors=True)
    (work / "input").mkdir(parents=True)
    files = max(1, arguments.documents // 50_000)
    jobs = [(arguments.text, work / "input" / f"{n:04d}.jsonl", arguments.documents // files, n) for n in range(files)]
    with multiprocessing.get_context("spawn").Pool(min(files, os.cpu_count() or 1)) as pool:
        sizes = pool.starmap(_write, jobs)
    print(f"{arguments.documents:,} documents, {sum(sizes) / 1e6:,.0f} MB")
    for name in arguments.models:
        _checkpoint(work / name, name, arguments.tokenizer)
    from gristmill.models.checkpoint import Checkpoint
    from gristmill.models.tokenizer import ReadLimits, load_tokenizer

    tokenizer = load_tokenizer(Checkpoint(str(work / arguments.models[0])))
    with open(work / "input" / "0000.jsonl", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(5000), strict=False)]
    start = time.process_time()
    lengths = tokenizer.tokens(texts, ReadLimits(None, 512))[0].lengths
    seconds = time.process_time() - start
    print(f"{lengths.mean():.0f} tokens on average, at most {lengths.max()}; one core: {5000 / seconds:,.0f} docs/s")


def _write(source: str, target: Path, count: int, seed: int) -> int:
    with open(target, "w", encoding="utf-8") as out:
        for number, text in enumerate(slices(Path(source), count, seed)):
            out.write(json.dumps({"id": f"{seed}-{number}", "text": text}) + "\n")
    return target.stat().st_size


def _checkpoint(folder: Path, name: str, tokenizer: str) -> None:
    import torch
    import transformers
    from models.documents import DEBERTA_V3_BASE, MINILM

    torch.manual_seed(0)
    if name == "deberta":
        config: Any = transformers.DebertaV2Config(**DEBERTA_V3_BASE)
        model: Any = transformers.DebertaV2ForSequenceClassification(config)
    else:
        config = transformers.BertConfig(**MINILM, num_labels=2)
        model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(folder)
    for path in Path(tokenizer).glob("*token*"):
        shutil.copy(path, folder)


class GpuSamples(threading.Thread):
    """Samples what NVML says of GPU 0: (time, utilization in percent, memory in use, watts)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int, int, float]] = []

    def run(self) -> None:
        import pynvml as nvml

        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
        while True:
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
            held, power = nvml.nvmlDeviceGetMemoryInfo(gpu).used, nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
            self.samples.append((time.time(), busy, held, power))
            time.sleep(0.1)


def run(arguments: argparse.Namespace) -> None:
    from gristmill import LocalExecutor, Pipeline, Resources
    from gristmill.text import (
        JsonlReader,
        JsonlWriter,
        MeanWordLengthFilter,
        ScoreFilter,
        SequenceClassifier,
        WordCountFilter,
    )

    work: Path = arguments.work
    output = work / f"output-{arguments.model}"
    shutil.rmtree(output, ignore_errors=True)
    stage = SequenceClassifier(str(work / arguments.model), label_field="label", score_field="scores")
    if arguments.share < 1:
        stage = stage.with_(resources=Resources(cpus=1, gpus=arguments.share))
    pipeline = Pipeline(
        "gpu",
        stages=[
            JsonlReader(str(work / "input")),
            ScoreFilter(WordCountFilter(min_words=5)),
            ScoreFilter(MeanWordLengthFilter()),
            stage,
            JsonlWriter(str(output)),
        ],
    )
    gpu = GpuSamples()
    if not arguments.no_gpu:
        gpu.start()
    start = time.time()
    config = {"execution_mode": "batch"} if arguments.batch_mode else {}
    result = pipeline.run(LocalExecutor(config=config))
    total = time.time() - start
    print(result.summary())
    written = sorted((path.stat().st_mtime, path) for path in output.glob("part-*.jsonl"))
    counts = [path.read_bytes().count(b"\n") for _, path in written]
    print(f"{sum(counts):,} documents in {total:.1f} s: {sum(counts) / total:,.0f} docs/s with start and end")
    ends, done = [when for when, _ in written], np.cumsum(counts)
    first, last = len(ends) // 5, len(ends) - 1 - len(ends) // 20
    speed = (done[last] - done[first]) / (ends[last] - ends[first])
    print(f"between the first fifth and the last twentieth: {speed:,.0f} docs/s over {ends[last] - ends[first]:.0f} s")
    steady = [sample for sample in gpu.samples if ends[first] <= sample[0] <= ends[last]]
    if steady:
        busy = np.array([sample[1] for sample in steady])
        print(
            f"GPU by NVML: busy {busy.mean():.2f} % on average, {np.percentile(busy, 5):.0f} % in the 5th percentile, "
            f"memory at most {max(sample[2] for sample in steady) / 2**30:.1f} GiB, "
            f"{np.mean([sample[3] for sample in steady]):.0f} W"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("prepare")
    making.add_argument("work", type=Path)
    making.add_argument("--text", required=True, help="a file of text, compressed by gzip")
    making.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json and tokenizer_config.json")
    making.add_argument("--documents", type=int, default=700_000)
    making.add_argument("--models", nargs="+", default=["deberta", "minilm"])
    making.set_defaults(act=prepare)
    running = commands.add_parser("run")
    running.add_argument("work", type=Path)
    running.add_argument("model")
    running.add_argument("--batch-mode", action="store_true")
    running.add_argument("--share", type=float, default=1.0, help="of the GPU, for each worker")
    running.add_argument("--no-gpu", action="store_true")
    running.set_defaults(act=run)
    arguments = parser.parse_args()
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
    arguments.act(arguments)


if __name__ == "__main__":
    main()
