"""Deduplication end to end, with removal: seconds, CPU and memory, ours and peers'.

    python benchmarks/dedup/speed.py fuzzy|exact WORK [--docs 20k|200k] [--only gristmill,datatrove,...] [--repeats 1]

WORK is the folder of benchmarks/text_filters: corpora as ``c20k`` and ``c200k``, the peers' environments in ``venvs``
(README.md says how to make both). The jobs of a round run one after the other; ratios are taken within a round. Prints
Markdown; each run is a line of ``WORK/dedup-results.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "text_filters"))
from install_peers import python_of  # noqa: E402  # of the benchmark beside this one
from measure import Measured, measure  # noqa: E402  # as above
from table import markdown  # noqa: E402  # as above

WORKERS = "2"
CORPORA = ("20k", "200k")


@dataclass(frozen=True)
class Job:
    label: str
    environment: str | None
    """Whose environment it runs in; None for this one."""
    script: str
    arguments: tuple[str, ...] = ()


JOBS: dict[str, dict[str, Job]] = {
    "fuzzy": {
        "gristmill": Job("gristmill, 24 characters", None, "gristmill_fuzzy.py", (WORKERS, "no-clusters")),
        "gristmill-words": Job(
            "gristmill, 5 words", None, "gristmill_fuzzy.py", (WORKERS, "no-clusters", "word_ngrams=5")
        ),
        "datatrove": Job("datatrove, 5 words", "datatrove", "datatrove_fuzzy.py", (WORKERS, "no-clusters")),
        "textdedup": Job("text-dedup, 5 words", "textdedup", "textdedup_fuzzy.py", (WORKERS, "no-clusters")),
        "datajuicer": Job("Data-Juicer, 24 characters", "datajuicer", "datajuicer_fuzzy.py", (WORKERS,)),
    },
    "exact": {
        "gristmill": Job("gristmill, with records", None, "gristmill_exact.py", (WORKERS,)),
        "gristmill-one": Job("gristmill, one worker", None, "gristmill_exact.py", ("1",)),
        "plain": Job("Python set of hashes, one process", "plain", "plain_exact.py"),
    },
}


def run(task: str, name: str, work: Path, docs: str, round_: int, timeout_s: float) -> Measured:
    job = JOBS[task][name]
    python = Path(sys.executable) if job.environment is None else python_of(work, job.environment)
    if not python.exists():
        raise SystemExit(f"{python} is not there: README.md says how the peers are installed.")
    out = work.absolute() / "out" / f"dedup-{task}-{name}"
    shutil.rmtree(out, ignore_errors=True)
    source = str((work / f"c{docs}").absolute())
    command = [str(python), str(HERE / "jobs" / job.script), source, str(out), *job.arguments]
    env = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    log = work / "logs" / f"dedup-{task}-{name}-{docs}-{round_}.log"
    done = measure(name, command, log, timeout_s, env)
    with (work / "dedup-results.jsonl").open("a") as results:
        results.write(json.dumps({"task": task, "docs": docs, "round": round_, **asdict(done)}) + "\n")
    if not done.ok:
        print(f"{name} failed ({done.code}); the end of {log}:", log.read_text(errors="replace")[-2000:], sep="\n")
    shutil.rmtree(out, ignore_errors=True)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tuple(JOBS))
    parser.add_argument("work", type=Path)
    parser.add_argument("--docs", choices=CORPORA, default="20k")
    parser.add_argument("--only", help="some of the jobs; without it all")
    parser.add_argument("--repeats", type=int, default=1, help="rounds")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one run")
    args = parser.parse_args()
    jobs = JOBS[args.task]
    names = args.only.split(",") if args.only else list(jobs)
    unknown = sorted(set(names) - set(jobs))
    if unknown:
        parser.error(f"there is no job {unknown[0]!r}: take some of {', '.join(jobs)}.")
    done: dict[str, list[Measured]] = {name: [] for name in names}
    for round_ in range(args.repeats):
        for name in names:
            one = run(args.task, name, args.work, args.docs, round_, args.timeout)
            print(
                f"{name} round {round_ + 1}: {one.wall_s:.2f} s wall, {one.cpu_s:.1f} s CPU, "
                f"{one.peak_pss / 1e9:.2f} GB, kept {one.figures.get('kept')}, load before {one.load_before:.1f}",
                file=sys.stderr,
                flush=True,
            )
            done[name].append(one)
    files = [path.read_bytes() for path in (args.work / f"c{args.docs}").glob("*.jsonl")]
    documents, size = sum(data.count(b"\n") for data in files), sum(map(len, files))
    print(markdown({jobs[name].label: runs for name, runs in done.items()}, documents, size))


if __name__ == "__main__":
    main()
