"""Does the campaign find bugs? Puts small ones into a copy of the scheduler, one at a time, and plays until one shows.

``python benchmarks/mutations.py [--seeds 2000] [--jobs 2] [--only TEXT]`` prints a table: the bug, the check that
caught it, and after how many seeds. It exits with 1 if a bug was not caught. A bug whose place in the source has moved
is an error: mend the list below.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import environ
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "gristmill"
LIMIT_S = 1800


@dataclass(frozen=True)
class Bug:
    """A change of ``old``, which is in the file exactly once, to ``new``."""

    what: str
    file: str
    old: str
    new: str


BUGS = [
    Bug(
        "an attempt that ended with its worker counts",
        "records/tasks.py",
        "self.attempts -= not verdict.is_attempt",
        "pass",
    ),
    Bug(
        "the capacity of a worker that left is not free again",
        "records/workers.py",
        "self.free.give(w.placement)",
        "pass",
    ),
    Bug("GPUs are not given back", "placement.py", "self.gpu_free[i] += p.gpu_share", "pass"),
    Bug(
        "what is suspended in a worker that dies is lost",
        "progress.py",
        "units = [*w.assigned, *w.suspended.values()]",
        "units = [*w.assigned]",
    ),
    Bug("the budget keeps nothing free for later steps", "credit.py", " + budget.headroom[step.index] <=", " <="),
    Bug(
        "what is promised does not count against the budget",
        "credit.py",
        "config.batch_mode or budget.held + budget.reserved + expected",
        "config.batch_mode or budget.held + expected",
    ),
    Bug(
        "a reservation is not given back",
        "state.py",
        "        self.budget.reserved -= unit.reserved\n",
        "        pass\n",
    ),
    Bug(
        "a worker that drains gets new work",
        "dispatch.py",
        "if w.state is WorkerState.DRAINING or (w.suspended and w.has_suspect):",
        "if w.suspended and w.has_suspect:",
    ),
    Bug(
        "a worker that is being killed gets new work",
        "dispatch.py",
        "    if w.kill_cause is not None:\n        return False\n",
        "",
    ),
    Bug(
        "others run beside a suspect that should run alone",
        "dispatch.py",
        "if s.ending.stopping or s.suspects.solo_running:",
        "if s.ending.stopping:",
    ),
    Bug(
        "a task is at fault if memory ran out beside others",
        "failure_policy.py",
        "if not unit.isolated or (is_out_of_memory and not unit.solo):",
        "if not unit.isolated:",
    ),
    Bug(
        "a task is at fault if it was killed from outside",
        "failure_policy.py",
        "is_kill = not (cause.is_own_fault and unit.is_named)",
        "is_kill = False",
    ),
    Bug(
        "data is let go before its task has finished",
        "progress.py",
        "    unit.deliver(e.busy_us, e.outputs)\n",
        "    unit.deliver(e.busy_us, e.outputs)\n    s.out.append(Release((unit.tasks[0].data,)))\n",
    ),
    Bug("data is never let go", "progress.py", "        s.out.append(Release((t.data,), cancelled))", "        pass"),
    Bug("slices leave an item out", "failure_policy.py", "(middle, start + items)", "(middle + 1, start + items)"),
    Bug("slices overlap", "failure_policy.py", "(start, middle), (middle,", "(start, middle + 1), (middle,"),
    Bug(
        "a worker that was replaced stays",
        "workers.py",
        "        drain(s, s.workers[w.replaces])",
        "        pass",
    ),
    Bug(
        "a suspended unit is put back and stays in its worker",
        "workers.py",
        "        s.out.append(Cancel(w.id, unit.key))\n        requeue",
        "        requeue",
    ),
    Bug(
        "a lost node keeps its workers",
        "scheduler.py",
        "for w in [w for w in s.workers.values() if w.node == e.node]:",
        "for w in list[WorkerRec]():",
    ),
    Bug(
        "a retry makes its outputs again",
        "dispatch.py",
        "Input(t.id, t.data, t.start, t.stop, t.emitted, wanted)",
        "Input(t.id, t.data, t.start, t.stop, 0, wanted)",
    ),
    Bug(
        "a step ends while another has yet to give it work",
        "scheduler.py",
        "        if step.live:\n            return\n",
        "        if step.live:\n            continue\n",
    ),
    Bug(
        "work of a step runs on a node that is not set up",
        "dispatch.py",
        "return not step.spec.node_setup or node.set_up.get(step.index, False)",
        "return True",
    ),
    Bug(
        "a task at fault is tried once more than allowed",
        "failure_policy.py",
        "if attempts < allowed and",
        "if attempts <= allowed and",
    ),
    Bug(
        "lost data is released before it is made again",
        "lost_data/events.py",
        "        s.lost.count_loss()\n",
        "        s.lost.count_loss()\n"
        "        from gristmill.scheduling.commands import Release\n"
        "        s.out.append(Release((data,)))\n"
        "        record.released = True\n",
    ),
    Bug(
        "what was made again goes to the wrong task",
        "lost_data/events.py",
        "zip(rebuild.asked, e.outputs, strict=False)",
        "zip(rebuild.asked[: len(e.outputs)][::-1], e.outputs, strict=False)",
    ),
    Bug(
        "what lost data could be made from is never released",
        "lost_data/lineage.py",
        "            record.remove_child()",
        "            pass",
    ),
    Bug(
        "what lost data could be made from is released at once",
        "lost_data/lineage.py",
        "        if not (record.children and not record.losable):\n",
        "        if True:\n",
    ),
    Bug(
        "a step that has ended is not opened again",
        "lost_data/recovery.py",
        "        step.reopen()\n",
        "        pass\n",
    ),
    Bug(
        "inputs that were lost count as a failure of the unit",
        "records/tasks.py",
        "        self.move(TaskMove.LOST)\n        self.attempts -= 1\n",
        "        self.move(TaskMove.LOST)\n",
    ),
    Bug(
        "a unit that comes back is tried although its data is lost",
        "lost_data/recovery.py",
        "        if missing:\n",
        "        if False:\n",
    ),
    Bug(
        "the old id of data that was made again is not released",
        "lost_data/recovery.py",
        "    if not record.released:\n        s.out.append(Release((old,)))\n",
        "",
    ),
    Bug(
        "lost data is made again from the whole instead of a slice",
        "lost_data/recovery.py",
        "s.now, start=record.start, stop=record.stop)",
        "s.now)",
    ),
    Bug(
        "outputs before the last chunk are not counted",
        "lost_data/lineage.py",
        "positions = {t.id: t.emitted for t in unit.tasks}",
        "positions = {t.id: 0 for t in unit.tasks}",
    ),
    Bug(
        "data fetched for others is fetched for ever",
        "lost_data/lineage.py",
        "            s.lost.fetch(record, False)\n",
        "            record.fetched = False\n",
    ),
    Bug("the CPUs of a node that shrinks stay", "placement.py", "        self.cpu += cpu\n", "        pass\n"),
    Bug(
        "a worker stays on a node that is too small for it",
        "balance.py",
        "                s.balance.vacate((step.index, w.node, w.placement))\n                drain(s, w)\n",
        "",
    ),
    Bug(
        "no shared worker is started",
        "workers.py",
        "    if s.ending.stopping or not any(step.queue.size and not step.dedicated for step in s.steps):\n",
        "    if True:\n",
    ),
    Bug(
        "a new worker seems faster than one that is starting",
        "balance.py",
        "delay = min(max(setup - elapsed, elapsed // 8), setup)",
        "delay = 10 * setup + UNIT",
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="the most seeds to play for one bug (default 2000)")
    parser.add_argument("--jobs", type=int, default=1, help="bugs that are tried at the same time")
    parser.add_argument("--only", default="", help="only bugs whose description has this text")
    options = parser.parse_args()
    bugs = [bug for bug in BUGS if options.only in bug.what]
    misplaced = [bug for bug in bugs if (SOURCE / "scheduling" / bug.file).read_text("utf-8").count(bug.old) != 1]
    for bug in misplaced:
        print(
            f"{bug.file} does not have this exactly once, so '{bug.what}' cannot be tried:\n{bug.old}", file=sys.stderr
        )
    if misplaced:
        return 2
    if not options.only and try_bug(None, 60)[0]:
        print("the campaign fails without any bug: mend that first", file=sys.stderr)
        return 2
    missed = 0
    print("| bug | caught by | after seeds |\n|---|---|---|", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for bug, (check, seeds) in zip(bugs, pool.map(lambda b: try_bug(b, options.seeds), bugs), strict=True):
            print(f"| {bug.what} | {check or 'nothing'} | {seeds} |", flush=True)
            missed += not check
    print(f"\n{len(bugs) - missed} of {len(bugs)} bugs were caught")
    return 1 if missed else 0


def try_bug(bug: Bug | None, seeds: int) -> tuple[str, int]:
    """The check that catches a bug, or nothing, and how many seeds it took."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "gristmill"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if bug is not None:
            file = copy / "scheduling" / bug.file
            file.write_text(file.read_text("utf-8").replace(bug.old, bug.new), "utf-8")
        command = [sys.executable, "-m", "tests.simulation.campaign"]
        command += ["--seeds", f"0:{seeds}", "--no-shrink", "--most", "1"]
        env = {**environ, "PYTHONPATH": folder}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"it does not end within {LIMIT_S} s", 0
    if done.returncode == 0:
        return "", seeds
    found = re.search(r"^seed (\d+) fails: .*?^kind: (.*?)$", done.stdout, re.MULTILINE | re.DOTALL)
    if found is None:
        return f"the campaign broke: {done.stderr.strip().splitlines()[-1:]}", 0
    return found[2].replace("AssertionError: ", ""), int(found[1]) + 1


if __name__ == "__main__":
    sys.exit(main())
