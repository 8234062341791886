"""Runs gristmill and the peers on the same documents, one after the other, and prints a table.

    python benchmarks/text_filters/run.py bench-work --docs 20k --peers plain,datatrove:1 --repeats 3

The job: JSONL to JSONL by the Gopher quality and repetition rules on 2 cores. In each round gristmill runs and then
each peer, in the order given; ``NAME:N`` runs in the first N rounds only. Every run is added to
WORK/results.jsonl as a line; what it printed is in WORK/logs. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from install_peers import python_of
from measure import Measured, measure
from table import markdown

HERE = Path(__file__).parent
CORES = "2"


@dataclass(frozen=True)
class Job:
    label: str
    environment: str | None
    """The peer's environment; None is the one this runs in."""
    script: str
    arguments: tuple[str, ...] = (CORES,)


JOBS = {
    "gristmill": Job("gristmill", None, "gristmill_job.py", (CORES, "excluded")),
    "gristmill-no-excluded": Job("gristmill, without `excluded/`", None, "gristmill_job.py", (CORES, "no-excluded")),
    "floor": Job("floor: orjson round trip, no rules, 2 processes", "plain", "peers/floor.py"),
    "plain": Job("plain Python, orjson, 2 processes", "plain", "peers/plain.py"),
    "datajuicer": Job("Data-Juicer, np=2 (13 simpler rules)", "datajuicer", "peers/datajuicer.py"),
    "curator-ray-data": Job("NeMo Curator, Ray Data, 2 CPUs", "curator", "peers/curator.py", (CORES, "ray_data")),
    "curator-xenna": Job("NeMo Curator, Xenna, 8 logical CPUs", "curator", "peers/curator.py", ("8", "xenna")),
    "datatrove": Job("datatrove, 2 workers", "datatrove", "peers/run_datatrove.py"),
}
OURS = [name for name, job in JOBS.items() if job.environment is None]
PEERS = [name for name in JOBS if name not in OURS]


def run(name: str, work: Path, docs: str, round_: int, timeout_s: float) -> Measured:
    job = JOBS[name]
    python = Path(sys.executable) if job.environment is None else python_of(work, job.environment)
    if not python.exists():
        raise SystemExit(f"{python} is not there: run install_peers.py {work} --peers {job.environment} first.")
    out = work.absolute() / "out" / name
    shutil.rmtree(out, ignore_errors=True)
    arguments = [*job.arguments, str(work / "ray")] if job.environment == "curator" else [*job.arguments]
    command = [str(python), str(HERE / job.script), str((work / f"c{docs}").absolute()), str(out), *arguments]
    # Curator starts Ray by its name
    env = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    log = work / "logs" / f"{name}-{docs}-{round_}.log"
    done = measure(name, command, log, timeout_s, env)
    with (work / "results.jsonl").open("a") as results:
        results.write(json.dumps({"docs": docs, "round": round_, **asdict(done)}) + "\n")
    if not done.ok:
        print(f"{name} failed ({done.code}); the end of {log}:", log.read_text(errors="replace")[-2000:], sep="\n")
    return done


def rounds(text: str, repeats: int) -> dict[str, int]:
    """How often each peer runs: ``a,b:1`` says b once."""
    found = {}
    for part in filter(None, text.split(",")):
        name, _, count = part.partition(":")
        if name not in PEERS:
            raise SystemExit(f"there is no peer {name!r}: take some of {', '.join(PEERS)}.")
        found[name] = int(count or repeats)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder for everything the benchmark makes")
    parser.add_argument("--docs", choices=("20k", "200k"), default="20k")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {', '.join(PEERS)}; NAME:N for N rounds")
    parser.add_argument("--repeats", type=int, default=1, help="rounds")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one run")
    args = parser.parse_args(argv)
    wanted = dict.fromkeys(OURS, args.repeats) | rounds(args.peers, args.repeats)
    done: dict[str, list[Measured]] = {name: [] for name in wanted}
    for round_ in range(max(wanted.values())):
        for name, count in wanted.items():
            if round_ < count:
                one = run(name, args.work, args.docs, round_, args.timeout)
                print(
                    f"{name} round {round_ + 1}: {one.wall_s:.2f} s wall, {one.cpu_s:.1f} s CPU, "
                    f"{one.peak_pss / 1e9:.2f} GB, kept {one.figures.get('kept')}, load before {one.load_before:.1f}",
                    flush=True,
                )
                done[name].append(one)
    documents = {"20k": 20_000, "200k": 200_000}[args.docs]
    size = sum(path.stat().st_size for path in (args.work / f"c{args.docs}").glob("*.jsonl"))
    print()
    print(markdown({JOBS[name].label: runs for name, runs in done.items()}, documents, size))


if __name__ == "__main__":
    main()
