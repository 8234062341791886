"""Fuzzy deduplication of files, end to end, with sketches on a GPU and on the CPU: the same bytes, and how fast.

    python benchmarks/dedup/gpu_run.py FOLDER [documents [copies]]

The corpus is made in FOLDER: seeded words, 2.7 KB a document, a fifth of them near-duplicates; with ``copies`` each of
its files is there so many times, by links.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from pathlib import Path

from gristmill.backends.local import LocalExecutor
from gristmill.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

DOCUMENTS = 200_000
FILES = 32


def make_corpus(folder: Path, documents: int) -> None:
    folder.mkdir(parents=True)
    rng = random.Random(3)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 10))) for _ in range(20_000)]
    texts: list[str] = []
    for f in range(FILES):
        with open(folder / f"{f:03d}.jsonl", "w") as file:
            for i in range(documents // FILES):
                if texts and rng.random() < 0.2:
                    some = rng.choice(texts).split()
                    some[rng.randrange(len(some))] = "changed"
                    text = " ".join(some)
                else:
                    text = " ".join(rng.choices(words, k=410))
                    if len(texts) < 5000:
                        texts.append(text)
                file.write(json.dumps({"id": f"{f}-{i}", "text": text}) + "\n")


def content(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def main() -> int:
    folder = Path(sys.argv[1])
    documents = int(sys.argv[2]) if len(sys.argv) > 2 else DOCUMENTS
    if not (folder / "in").exists():
        make_corpus(folder / "in", documents)
    copies = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    for file in sorted((folder / "in").glob("[0-9]*.jsonl")):
        for n in range(1, copies):
            link = file.with_name(f"copy{n:03d}-{file.name}")
            if not link.exists():
                link.symlink_to(file)
    size = sum(path.stat().st_size for path in (folder / "in").iterdir())
    outputs = {}
    for device in ("cpu", "cuda", "cpu", "cuda"):
        output = folder / f"out-{device}"
        shutil.rmtree(output, ignore_errors=True)
        began = time.perf_counter()
        workflow = FuzzyDeduplicationWorkflow(str(folder / "in"), str(output), device=device)
        result = workflow.run(LocalExecutor({"view": "off"}))
        seconds = time.perf_counter() - began
        rate = f"{result.documents / seconds:,.0f} documents/s, {size / seconds / 1e9:.2f} GB/s"
        print(f"{device}: {seconds:.1f} s, {rate}, {result.duplicates:,} duplicates", flush=True)
        busy = {name: round(stage.busy_s, 1) for name, stage in result.run.stages.items()}
        print(f"  seconds of workers: {busy}; {result.run.record.notes[-1]}", flush=True)
        outputs[device] = content(output)
    same = outputs["cpu"] == outputs["cuda"]
    print("identical bytes" if same else "DIFFERENT BYTES")
    return not same


if __name__ == "__main__":
    sys.exit(main())
