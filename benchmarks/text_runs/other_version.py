"""Kills runs of another checkout of gristmill, resumes them with this one, and compares with undisturbed runs.

    git worktree add /tmp/parent COMMIT
    python benchmarks/text_runs/other_version.py /tmp/parent INPUT WORK [--kills 5] [--seed N] [--only PIPELINE ...]

Each pipeline is started with the other checkout and killed (SIGKILL to the driver) at a random moment after its first
commit. This tree then runs the same command. It must finish with the bytes and the ledger of its own undisturbed run,
or refuse with a message. The seed is drawn and printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kill_campaign import contents, temporary

HERE = Path(__file__).resolve().parents[2]
OWN_STAGE = """\
import time

from gristmill import DocumentBatch, ProcessingStage
from gristmill.stages.registry import register
from gristmill.stages.text.filters import DocumentFilter

LEAST = 3


@register
class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task):
        time.sleep(0.05)
        return task


@register
class OwnFilter(DocumentFilter):
    def score_document(self, text):
        return len(text) % 10

    def keep_document(self, score):
        return score >= LEAST
"""
RULES = ["recipe: gopher-quality", "recipe: gopher-repetition"]
CHANGES = "Modify: {modifier_fn: [NewlineNormalizer, PiiRedactor]}"
PIPELINES = {
    "rules to JSONL": [*RULES, "JsonlWriter: {path: OUT}"],
    "rules and changes to Parquet": [*RULES, CHANGES, "ParquetWriter: {path: OUT}"],
    "exact deduplication": ["ExactDeduplication: {}", *RULES, "JsonlWriter: {path: OUT}"],
    "fuzzy deduplication": [*RULES, "FuzzyDeduplication: {survivor: longest}", CHANGES, "JsonlWriter: {path: OUT}"],
    "own stage and filter": ["ScoreFilter: {filter_obj: {OwnFilter: {}}}", "Slow: {}", "JsonlWriter: {path: OUT}"],
}


def environment(tree: Path, work: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{tree.resolve() / 'src'}:{work}", "PYTHONDONTWRITEBYTECODE": "1"}


def command(work: Path, source: Path, stages: list[str], out: Path) -> list[str]:
    """Write the pipeline that writes to ``out``, and return the command that runs it."""
    file = work / "pipeline.yaml"
    lines = [f"JsonlReader: {{file_paths: {source}, blocksize: 4MB}}", *stages]
    text = "".join(f"  - {line}\n" for line in lines).replace("OUT", str(out))
    file.write_text(f"name: job\nimports: [own_stage]\nstages:\n{text}")
    return [sys.executable, "-m", "gristmill", "run", str(file), "--view", "off", "--cpus", "2"]


def commits(out: Path) -> dict[str, int]:
    """Return the number of commits by the folder of the log."""
    found: dict[str, int] = {}
    for file in out.glob("_gristmill/**/commits/*"):
        try:
            count = sum(1 for _ in file.open("rb"))
        except FileNotFoundError:  # renamed meanwhile
            continue
        where = str(file.parent.parent.relative_to(out))
        found[where] = found.get(where, 0) + count
    return found


def kill_late(process: subprocess.Popen[bytes], out: Path, wait_s: float) -> bool:
    """Kill the driver some time after its first commit. Return whether it was still running."""
    while process.poll() is None and not commits(out):
        time.sleep(0.02)
    time.sleep(wait_s)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the commit that begins the runs")
    parser.add_argument("input", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=5, help="of each pipeline")
    parser.add_argument("--only", choices=PIPELINES, nargs="+", default=list(PIPELINES))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    work, source = args.work.resolve(), args.input.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "own_stage.py").write_text(OWN_STAGE)
    ours, theirs = environment(HERE, work), environment(args.other, work)
    problems = 0
    for name in args.only:
        stages = PIPELINES[name]
        whole = work / "whole"
        began = time.monotonic()
        subprocess.run(command(work, source, stages, whole), env=ours, check=True, capture_output=True)
        seconds = time.monotonic() - began
        expected = contents(whole)
        shutil.rmtree(whole)
        killed = 0
        while killed < args.kills:
            out = work / "killed"
            shutil.rmtree(out, ignore_errors=True)
            job = command(work, source, stages, out)
            with (work / "log").open("wb") as log:
                process = subprocess.Popen(job, env=theirs, stdout=log, stderr=log)
            if not kill_late(process, out, rng.uniform(0, seconds * 0.7)):
                if process.returncode:
                    sys.exit(f"{name}: the other checkout failed:\n{(work / 'log').read_text()[-2000:]}")
                continue  # it was done before
            killed += 1
            time.sleep(1)  # the supervisor and its workers end with the driver
            there = commits(out)
            done = subprocess.run(job, env=ours, capture_output=True, text=True)
            resumed = next((line for line in done.stdout.splitlines() if "resumed" in line), "")
            if done.returncode:
                verdict = f"refused: {done.stderr.strip()}"
            else:
                found = contents(out)
                differing = [n for n in sorted({*found, *expected}) if found.get(n) != expected.get(n)]
                differing += temporary(out)
                problems += bool(differing)
                verdict = f"differs: {differing[:3]}" if differing else f"equal ({len(found) - 1} files)"
            print(f"{name}: killed with commits {json.dumps(there)}; {verdict}; {resumed.strip()}", flush=True)
    print(f"{problems} with a problem")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
