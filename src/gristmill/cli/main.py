"""``gristmill run``, ``plan``, ``simulate``. What is heavy is imported where it is used: ``--help`` must be quick."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gristmill import __version__
from gristmill.cli.target import UsageError, load_pipeline

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

TARGET = """\
TARGET is path/to/file.py[:name] or package.module[:name]. It names a Pipeline, or a function without
required arguments that returns one; without a name it is 'pipeline'."""

LOAD = """\
LOAD.json holds one load or a list of them: nodes, stages and the number of inputs. LOAD.json#name takes the one
of that name; without a name all are simulated in turn."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 1 if the pipeline failed, 2 for wrong usage, 130 after Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        return _COMMANDS[args.command](args)
    except UsageError as error:
        return _say(str(error), USAGE)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)


def _run(args: argparse.Namespace) -> int:
    from gristmill.errors import PipelineError, PipelineFailed

    try:
        for path in filter(None, (args.save_profile, args.save_load)):
            _check_folder(path)
        pipeline, tasks = load_pipeline(args.target)
        from gristmill.backends.local import LocalExecutor

        result = pipeline.run(LocalExecutor(config=executor_config(args)), tasks, fuse=not args.no_fuse)
    except PipelineError as error:
        if isinstance(error, PipelineFailed):
            print(error.result.summary())
        return _say(str(error), FAILED)
    print(result.summary())
    try:
        if args.save_profile:
            result.profile().write(args.save_profile)
        if args.save_load:
            result.load().write(args.save_load)
    except (OSError, PipelineError) as error:
        return _say(str(error), FAILED)
    return INTERRUPTED if result.record.interrupted else OK


def _check_folder(path: str) -> None:
    """Say before a run of hours that its results could not be written."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{path} cannot be written: there is no folder {folder}")
    if os.path.isdir(path):
        raise UsageError(f"{path} cannot be written: it is a folder")


def executor_config(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say, in the executor's words; what they do not say is left to its defaults."""
    config = {
        "num_cpus": args.cpus,
        "num_gpus": args.gpus,
        "memory_limit": args.memory_limit,
        "execution_mode": "batch" if args.batch else None,
        "ignore_failures": args.ignore_failures or None,
        "view": args.view,
        "profile": args.profile,
    }
    return {key: value for key, value in config.items() if value is not None}


def _plan(args: argparse.Namespace) -> int:
    from gristmill.errors import PipelineError, PlanError

    try:
        pipeline, _ = load_pipeline(args.target)
    except PipelineError as error:
        return _say(str(error), FAILED)
    print(pipeline.describe())
    try:
        pipeline.plan()
    except PlanError:  # the description has said what is wrong
        return FAILED
    return OK


def _simulate(args: argparse.Namespace) -> int:
    from gristmill.cli.simulate import simulate_loads

    try:
        done = simulate_loads(args.load, args.seed, args.nodes, args.inputs, args.profile, args.json, args.width)
    except BrokenPipeError:  # whoever read the output has gone, as `| head` does; Python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return OK if done else FAILED


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"run": _run, "plan": _plan, "simulate": _simulate}


def _say(text: str, status: int) -> int:
    print(f"gristmill: {text}", file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line that says what was wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"gristmill: {message}; see '{self.prog} --help'\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gristmill", description="Runs data-curation pipelines on this machine.")
    parser.add_argument("--version", action="version", version=f"gristmill {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    run = commands.add_parser("run", help="run a pipeline", description="Run a pipeline.", epilog=TARGET)
    run.add_argument("target", metavar="TARGET")
    run.add_argument("--cpus", type=_positive(float), metavar="N", help="CPUs to use (default: those of the machine)")
    run.add_argument(
        "--gpus",
        type=_positive(int, zero=True),
        metavar="N",
        help="GPUs to use; a count above the hardware's is allowed",
    )
    run.add_argument(
        "--memory-limit", type=parse_size, metavar="SIZE", help="memory for the run, such as 8GB or 512MiB"
    )
    run.add_argument("--batch", action="store_true", help="finish each step before the next begins")
    run.add_argument("--ignore-failures", action="store_true", help="succeed even if tasks failed; they are reported")
    run.add_argument("--view", choices=("auto", "live", "lines", "off"), default="auto", help="how to watch the run")
    run.add_argument("--no-fuse", action="store_true", help="run each stage as a step of its own")
    run.add_argument("--profile", metavar="FILE", help="what an earlier run has measured, to begin with a good balance")
    run.add_argument("--save-profile", metavar="FILE", help="write what this run has measured, for --profile")
    run.add_argument("--save-load", metavar="FILE", help="write this run as a load for the simulator")

    plan = commands.add_parser(
        "plan",
        help="check a pipeline and show its steps",
        description="Check a pipeline and show its steps.",
        epilog=TARGET,
    )
    plan.add_argument("target", metavar="TARGET")

    simulate = commands.add_parser(
        "simulate",
        help="play a load on a cluster in virtual time",
        description="Play a load on a cluster in virtual time, under the scheduler that would run it, and show how "
        "long it takes, what each stage's workers did and why.",
        epilog=LOAD,
    )
    simulate.add_argument("load", metavar="LOAD.json")
    simulate.add_argument(
        "--seed", type=_positive(int, zero=True), default=1, metavar="N", help="of chance (default: 1)"
    )
    simulate.add_argument(
        "--nodes",
        metavar="NODES",
        help="other nodes than the load's: 8x96c8g, or 8x96c8g,4x64c; with 4 GB a CPU and 80 GB a GPU",
    )
    simulate.add_argument("--inputs", type=_positive(int), metavar="N", help="another number of inputs than the load's")
    simulate.add_argument("--profile", metavar="PROFILE.json", help="what is known of the stages before the run")
    simulate.add_argument("--json", action="store_true", help="print everything as JSON")
    simulate.add_argument("--width", type=_width, metavar="N", help="columns (default: the terminal's, or 80)")
    return parser


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str) -> int:
    """Bytes from a number with a unit; a kB is 1024 bytes, as everywhere here.

    >>> parse_size("8GB"), parse_size("1.5 GiB"), parse_size("4096")
    (8589934592, 1610612736, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])i?)?b?\s*", text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[(match[2] or "").lower()]) if match else 0
    if size <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write a number and a unit, such as 8GB or 512MiB")
    return size


def _positive(kind: type[int] | type[float], zero: bool = False) -> Any:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not (0 < value < float("inf") or (zero and value == 0)):
            whole = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {whole} {'of 0 or more' if zero else 'above 0'}")
        return value

    return parse


def _width(text: str) -> int:
    if not text.isdecimal() or not 40 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a width; write a whole number from 40 to 10000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
