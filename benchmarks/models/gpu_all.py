"""All measurements of models on one GPU, in one command that ends in time.

    python benchmarks/models/gpu_all.py OUT --text sotu.txt.gz --tokenizer FOLDER [--limit 570] [--parts tests ...]
    python benchmarks/models/gpu_all.py OUT --text sotu.txt.gz --tokenizer FOLDER --tiny     # try it on a CPU

OUT gets a log of each command, and summary.txt. What would begin after ``--limit`` seconds is not run, and a command
that takes longer is stopped; the summary names both. The parts, in this order:

- ``tests``: the tests that need a GPU.
- ``alone``: tables of DeBERTa-v3-base, MiniLM and a 7B Llama (`gpu.py`).
- ``scores``: errors and labels of 2,000 documents, and the same bytes again (`agreement.py`).
- ``pipeline``: DeBERTa and MiniLM from files to files (`pipeline_gpu.py`).
- ``variants``: DeBERTa on some of the files, then the same with one step at a time, with four workers that share the
  GPU, with too little memory, and with the token budget found by itself, each compared with the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PARTS = ("tests", "alone", "scores", "pipeline", "variants")


def commands(options: argparse.Namespace) -> Iterator[tuple[str, str, list[str]]]:
    """The part, the name of the log, and the command of each measurement."""
    work, text = str(options.out / "work"), str(options.text)
    pipeline = str(HERE / "pipeline_gpu.py")
    tiny = options.tiny
    few = ["--no-gpu"] if tiny else []
    some = ["--files", "0000.jsonl" if tiny else "000[0-1].jsonl"]
    # whatever plugins are installed
    plain = ["-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider"]
    for name, file in (("tests", "test_gpu.py"), ("tests-images", "vision/test_gpu.py")):
        yield "tests", name, ["-m", "pytest", str(ROOT / "tests/models" / file), "-q", "-s", *plain]
    if not tiny:
        for table in ("deberta", "minilm", "llama"):
            flash = ["--disentangled-flash", str(options.disentangled_flash)] if options.disentangled_flash else []
            more = [*(flash if table == "deberta" else []), *options.table_options]
            yield "alone", f"alone-{table}", [str(HERE / "gpu.py"), table, *more]
    making = ["prepare", work, "--text", text, "--tokenizer", str(options.tokenizer)]
    if {"scores", "pipeline", "variants"} & set(options.parts):
        yield "", "prepare", [pipeline, *making, "--documents", str(options.documents), *(["--tiny"] if tiny else [])]
    device, count = ("cpu", "50") if tiny else ("cuda", "2000")
    folders = [str(options.out / "work" / name) for name in ("deberta", "minilm")]
    scoring = [*folders, "--text", text, "--device", device, "--documents", count, "--budgets", "65536", "8192"]
    yield "scores", "scores", [str(HERE / "agreement.py"), *scoring]
    yield "pipeline", "tokenizer", [pipeline, "tokenizer", work, "deberta"]
    run = [pipeline, "run", work]
    yield "pipeline", "deberta", [*run, "deberta", *few]
    yield "pipeline", "minilm", [*run, "minilm", "--blocksize", "4MB", *few]
    variants = {
        "base": [],
        "batch": ["--batch-mode"],
        "four": ["--share", "0.25", "--workers", "4"],
        "capped": ["--gpu-memory-gb", "2.5", "--workers", "1"],
        "auto": ["--auto"],
    }
    for name, changes in variants.items():
        yield "variants", name, [*run, "deberta", "--output", name, *some, *([] if tiny else changes), *few]
        if name != "base":
            yield "variants", f"compare-{name}", [pipeline, "compare", work, "base", name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="a file of text, compressed by gzip")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--documents", type=int, default=700_000, help="of the pipelines")
    parser.add_argument("--limit", type=float, default=570.0, help="seconds for all")
    parser.add_argument("--disentangled-flash", type=Path, help="the folder of that package, if it is to be measured")
    parser.add_argument("--table-options", nargs="+", default=[], help="of gpu.py: compiled, profile")
    parser.add_argument("--tiny", action="store_true", help="small models and few documents, on the CPU")
    options = parser.parse_args()
    options.table_options = [f"--{name}" for name in options.table_options]
    options.out.mkdir(parents=True, exist_ok=True)
    if options.tiny:
        options.documents = min(options.documents, 400)
    begun, failed = time.monotonic(), 0
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1"}
    with open(options.out / "summary.txt", "w", encoding="utf-8") as summary:
        for part, name, command in commands(options):
            if part and part not in options.parts:
                continue
            left = options.limit - (time.monotonic() - begun)
            log = options.out / f"{name}.log"
            said = "not run: no time is left"
            if left > 5:
                start = time.monotonic()
                with open(log, "w", encoding="utf-8") as out:
                    try:
                        call = [sys.executable, *command]
                        ran = subprocess.run(call, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=left)
                        code = ran.returncode
                        said = f"exit status {code} after {time.monotonic() - start:.0f} s"
                        failed += code not in (0, 5)  # 5: all tests were skipped, since there is no GPU
                    except subprocess.TimeoutExpired:
                        said = f"stopped after {time.monotonic() - start:.0f} s: no time is left"
                        failed += 1
            print(f"== {name}: {said}", flush=True)
            summary.write(f"== {name}: {said}\n{' '.join(command)}\n")
            if log.exists():
                summary.write("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]) + "\n")
            summary.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
