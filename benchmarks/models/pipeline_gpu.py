"""A whole pipeline on one GPU: JSONL, heuristic filters, tokens, model, JSONL, with the balancer on.

    python benchmarks/models/pipeline_gpu.py prepare WORK --text sotu.txt.gz --tokenizer FOLDER --documents 700000
    python benchmarks/models/pipeline_gpu.py tokenizer WORK deberta
    python benchmarks/models/pipeline_gpu.py run WORK deberta
    python benchmarks/models/pipeline_gpu.py run WORK deberta --batch-mode
    python benchmarks/models/pipeline_gpu.py run WORK deberta --gpu-memory-gb 2.5 --workers 1 --output capped
    python benchmarks/models/pipeline_gpu.py compare WORK deberta capped

`prepare` makes documents of 291 tokens on average, at most 512, of slices of real text, and checkpoints with the shape
of DeBERTa-v3-base and MiniLM with random weights (``--tiny``: two layers of 64 numbers, to try the commands on a CPU).
`tokenizer` measures the tokenizer, in one process and in one less than there are cores. `run` prints documents per
second between the first tenth and the last fiftieth of the blocks, what NVML says of the GPU and of its processes in
that time, and the workers of each step. Where CPU workers are the limit, that needs many more blocks than workers
(``--blocksize``), since the workers end their first blocks at about the same time. `compare` reads two outputs and
compares scores and labels of the same documents, and the bytes of the files that both have.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from texts import slices


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
        _checkpoint(work / name, name, arguments.tokenizer, TINY if arguments.tiny else {})


def _write(source: str, target: Path, count: int, seed: int) -> int:
    with open(target, "w", encoding="utf-8") as out:
        for number, text in enumerate(slices(Path(source), count, seed)):
            out.write(json.dumps({"id": f"{seed}-{number}", "text": text}) + "\n")
    return target.stat().st_size


def tokenizer(arguments: argparse.Namespace) -> None:
    cores = os.cpu_count() or 1
    for processes in (1, cores - 1):
        if processes < 1:
            continue
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(processes)
        with context.Pool(processes, _load_tokenizer, (arguments.work, arguments.model, ready)) as pool:
            jobs = [pool.apply_async(_tokenize) for _ in range(processes)]
            spans = [job.get() for job in jobs]
        seconds = max(end for _, end in spans) - min(start for start, _ in spans)
        speed = processes * TOKENIZED / seconds
        print(f"tokenizer, {processes} processes: {speed:,.0f} docs/s, {speed / processes:,.0f} for each")


TOKENIZED = 10_000
LOADED: list[Any] = []
"""In a process that measures the tokenizer: the tokenizer, the texts, and a barrier."""


def _load_tokenizer(work: Path, model: str, ready: Any) -> None:
    from gristmill.models.checkpoint import Checkpoint
    from gristmill.models.tokenizer import load_tokenizer

    with open(work / "input" / "0000.jsonl", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(TOKENIZED), strict=False)]
    LOADED.extend((load_tokenizer(Checkpoint(str(work / model))), texts, ready))


def _tokenize() -> tuple[float, float]:
    """Tokenize the first documents. Return when that began, in all processes at once, and when it ended."""
    from gristmill.models.tokenizer import ReadLimits

    tokenizer, texts, ready = LOADED
    ready.wait()
    start = time.time()
    tokenizer.tokens((texts * (TOKENIZED // len(texts) + 1))[:TOKENIZED], ReadLimits(None, 512))
    return start, time.time()


TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def _checkpoint(folder: Path, name: str, tokenizer: str, changes: dict[str, int]) -> None:
    import torch
    import transformers
    from documents import DEBERTA_V3_BASE, MINILM

    torch.manual_seed(0)
    if name == "deberta":
        config: Any = transformers.DebertaV2Config(**DEBERTA_V3_BASE | changes)
        model: Any = transformers.DebertaV2ForSequenceClassification(config)
    else:
        config = transformers.BertConfig(**MINILM | changes, num_labels=2)
        model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(folder)
    for path in Path(tokenizer).glob("*token*"):
        shutil.copy(path, folder)


class GpuSamples(threading.Thread):
    """Samples what NVML says of GPU 0: (time, utilization in percent, memory in use, watts)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int, int, float]] = []
        self.most: dict[int, int] = {}
        """The most memory of each process on the GPU."""

    def run(self) -> None:
        import pynvml as nvml

        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
        while True:
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
            held, power = nvml.nvmlDeviceGetMemoryInfo(gpu).used, nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
            self.samples.append((time.time(), busy, held, power))
            for one in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
                self.most[one.pid] = max(self.most.get(one.pid, 0), one.usedGpuMemory or 0)
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
    output = work / f"output-{arguments.output or arguments.model}"
    shutil.rmtree(output, ignore_errors=True)
    size: Any = "auto" if arguments.auto else 256
    stage = SequenceClassifier(
        str(work / arguments.model), label_field="label", score_field="scores", model_inference_batch_size=size
    )
    if arguments.gpu_memory_gb is not None:
        stage = stage.with_(resources=Resources(cpus=1, gpu_memory_gb=arguments.gpu_memory_gb))
    elif arguments.share < 1:
        stage = stage.with_(resources=Resources(cpus=1, gpus=arguments.share))
    if arguments.workers is not None:
        stage = stage.with_({"SequenceClassifier model": {"num_workers": arguments.workers}})
    pipeline = Pipeline(
        "gpu",
        stages=[
            JsonlReader(str(work / "input" / arguments.files), blocksize=arguments.blocksize),
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
    first, last = len(ends) // 10, len(ends) - 1 - len(ends) // 50
    if first >= last:
        print("too few blocks for a steady rate")
        return
    speed = (done[last] - done[first]) / (ends[last] - ends[first])
    print(f"between the first tenth and the last fiftieth: {speed:,.0f} docs/s over {ends[last] - ends[first]:.0f} s")
    steady = [sample for sample in gpu.samples if ends[first] <= sample[0] <= ends[last]]
    if steady:
        busy = np.array([sample[1] for sample in steady])
        print(
            f"GPU by NVML: busy {busy.mean():.2f} % on average, {np.percentile(busy, 5):.0f} % in the 5th percentile, "
            f"at 99 % or more in {np.mean(busy >= 99):.1%} of {len(busy)} samples, "
            f"memory at most {max(sample[2] for sample in steady) / 2**30:.1f} GiB, "
            f"{np.mean([sample[3] for sample in steady]):.0f} W"
        )
        print("most memory of each process, GiB:", sorted(round(most / 2**30, 2) for most in gpu.most.values()))


def compare(arguments: argparse.Namespace) -> None:
    one, other = (_rows(arguments.work / f"output-{name}") for name in (arguments.one, arguments.other))
    shared = sorted(one.keys() & other.keys())
    same = sum(one[key][0] == other[key][0] for key in shared)
    error = max((float(np.abs(np.subtract(one[key][1], other[key][1])).max()) for key in shared), default=0.0)
    print(f"{len(shared):,} documents in both, {len(one):,} and {len(other):,} in each")
    print(f"labels equal {same:,} of {len(shared):,}; largest difference of a probability {error:.2e}")
    paths = sorted((arguments.work / f"output-{arguments.one}").glob("part-*.jsonl"))
    pairs = [(path, arguments.work / f"output-{arguments.other}" / path.name) for path in paths]
    equal = [a.read_bytes() == b.read_bytes() for a, b in pairs if b.exists()]
    print(f"files of the same name: {len(equal)}, with the same bytes: {sum(equal)}")


def _rows(output: Path) -> dict[str, tuple[str, list[float]]]:
    found = {}
    for path in output.glob("part-*.jsonl"):
        with open(path, encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                found[row["id"]] = (row["label"], row["scores"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("prepare")
    making.add_argument("work", type=Path)
    making.add_argument("--text", required=True, help="a file of text, compressed by gzip")
    making.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json and tokenizer_config.json")
    making.add_argument("--documents", type=int, default=700_000)
    making.add_argument("--models", nargs="+", default=["deberta", "minilm"])
    making.add_argument("--tiny", action="store_true", help="small models, to try the commands")
    making.set_defaults(act=prepare)
    reading = commands.add_parser("tokenizer")
    reading.add_argument("work", type=Path)
    reading.add_argument("model")
    reading.set_defaults(act=tokenizer)
    running = commands.add_parser("run")
    running.add_argument("work", type=Path)
    running.add_argument("model")
    running.add_argument("--batch-mode", action="store_true")
    running.add_argument("--share", type=float, default=1.0, help="of the GPU, for each worker")
    running.add_argument("--gpu-memory-gb", type=float, help="of the GPU, for each worker")
    running.add_argument("--workers", type=int, help="of the model, instead of what the balancer chooses")
    running.add_argument("--auto", action="store_true", help="find the token budget during the run")
    running.add_argument("--files", default="*.jsonl", help="which of the files, as a glob pattern")
    running.add_argument("--blocksize", help="of the input; default: that of the reader")
    running.add_argument("--output", help="the name of the output; default: that of the model")
    running.add_argument("--no-gpu", action="store_true", help="do not sample NVML")
    running.set_defaults(act=run)
    comparing = commands.add_parser("compare")
    comparing.add_argument("work", type=Path)
    comparing.add_argument("one")
    comparing.add_argument("other")
    comparing.set_defaults(act=compare)
    arguments = parser.parse_args()
    arguments.act(arguments)


if __name__ == "__main__":
    main()
