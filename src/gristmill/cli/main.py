"""The commands and their options. Slow imports are in the commands, since ``--help`` must be fast."""

from __future__ import annotations

import argparse
import math
import os
import select
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gristmill import __version__
from gristmill.cli import metrics
from gristmill.cli.plan_options import add_plan_options, is_capacity_plan
from gristmill.cli.target import UsageError
from gristmill.secrets import without_secrets
from gristmill.sizes import WANTED as SIZE_WANTED
from gristmill.sizes import parse_size

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_NAME = "gristmill: "

TARGET = """\
TARGET is pipeline.yaml, or path/to/file.py[:name], or package.module[:name]. The latter two name a Pipeline, or a
function without required arguments that returns one; without a name it is 'pipeline'."""

EXECUTORS = ("local", "ray", "ray_data", "xenna")

LOAD = """\
LOAD.json holds one load or a list of them: nodes, stages and the number of inputs. LOAD.json#name takes the one
of that name; without a name all are simulated in turn."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 1 if the pipeline failed, 2 for wrong usage, 130 after Ctrl-C."""
    args = _parse(sys.argv[1:] if argv is None else argv)
    try:
        status = _execute(args)
        sys.stdout.flush()
        return status
    except UsageError as error:
        if error.has_place:  # in a file: in the format of compilers
            print(without_secrets(str(error)), file=sys.stderr)
            return USAGE
        return _say(str(error), USAGE)
    except KeyboardInterrupt as error:
        return _say("\n".join([_folded(str(error) or "interrupted"), *getattr(error, "__notes__", ())]), INTERRUPTED)
    except BrokenPipeError:
        if _has_reader():  # it was another pipe
            raise
        return _reader_has_gone()


def _plan(args: argparse.Namespace) -> int:
    if is_capacity_plan(args):
        from gristmill.cli.plan import plan_job

        return plan_job(args)
    from gristmill.cli.run import plan

    return plan(args)


def _execute(args: argparse.Namespace) -> int:
    match args.command:
        case "run":
            from gristmill.cli.run import run

            return run(args)
        case "plan":
            return _plan(args)
        case "init":
            from gristmill.cli.init import init

            return _print(init(args.path, args.images, args.video))
        case "stages":
            from gristmill.cli.stages import show_stages

            return _print(show_stages(args.name, args.imports))
        case "explain":
            from gristmill.cli.output import explain_document

            return _print(explain_document(args.output, args.id, args.pipeline, args.id_field))
        case "dropped":
            from gristmill.cli.output import show_dropped

            shown = show_dropped(args.output, args.stage, args.reason, args.number, args.id_field, args.text_field)
            return _print(list(shown))
        case "metrics":
            return metrics.metrics(args)
        case "report":
            from gristmill.cli.report import report

            return _print(report(args.output, args.file, args.open))
        case "diff":
            from gristmill.cli.report import diff

            return _print(diff(args.one, args.other, args.html, args.id_field))
        case "what-if":
            from gristmill.cli.what_if import show_what_if

            return _print(list(show_what_if(args.output, args.change, args.pipeline, args.number, args.json)))
        case "stats":
            from gristmill.cli.stats import show_stats

            return _print(list(show_stats(args)))
        case "llm-cache":
            from gristmill.cli.llm_cache import llm_cache

            return _print(llm_cache(args.folder, args.max_size, args.older_than))
        case "verify":
            from gristmill.cli.output import verify

            return verify(args.output)
        case _:
            from gristmill.cli.simulate import simulate_loads

            try:
                return OK if simulate_loads(args) else FAILED
            except BrokenPipeError:
                return _reader_has_gone()


def _print(lines: Sequence[str]) -> int:
    print("\n".join(lines))
    return OK


def _has_reader() -> bool:
    """Return whether a process still reads the output."""
    looks = select.poll()
    looks.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in looks.poll(0))


def _reader_has_gone() -> int:
    """Redirect the output after its reader has ended, as `| head` does. Python would print an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _folded(text: str) -> str:
    """Return a text as lines of 80 columns that begin after the name of the program."""
    return "\n".join(textwrap.wrap(text, 80, initial_indent=" " * len(_NAME), subsequent_indent="  ")).lstrip()


def _say(text: str, status: int) -> int:
    print(f"{_NAME}{without_secrets(text)}", file=sys.stderr)
    return status


def _value(read: Callable[[str], Any], accepts: Callable[[Any], bool], wanted: str) -> Callable[[str], Any]:
    """Return a parser of an option's value, which raises an error that names what is wanted."""

    def parse(text: str) -> Any:
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None or not accepts(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return parse


_COUNT = _value(int, lambda n: n > 0, "a whole number above 0")
_NATURAL = _value(int, lambda n: n >= 0, "a whole number of 0 or more")
_NUMBER = _value(float, lambda x: 0 < x < math.inf, "a number above 0")
_FRACTION = _value(float, lambda x: 0 < x <= 1, "a fraction; write a number above 0 and up to 1, such as 0.01")
_WIDTH = _value(int, lambda n: 40 <= n <= 10_000, "a width; write a whole number from 40 to 10000")
_PORT = _value(int, lambda n: 0 <= n <= 65535, "a port; write a whole number from 0 to 65535")
_SIZE = _value(parse_size, bool, SIZE_WANTED)


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"gristmill: {message}; see '{self.prog} --help'\n")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. End the process if it is wrong."""
    parser, commands = _parser()
    if argv and not argv[0].startswith("-") and argv[0] not in commands:
        from gristmill.cli.hints import unknown_command

        parser.error(unknown_command(argv[0], commands))
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        from gristmill.cli.hints import unknown_arguments

        command = commands[args.command]
        command.error(unknown_arguments(unknown, command.format_help()))
    return args


def _parser() -> tuple[_Parser, Mapping[str, _Parser]]:
    """Return the parser, and those of the commands by name."""
    parser = _Parser(prog="gristmill", description="Run data-curation pipelines, on this machine or on a cluster.")
    parser.add_argument("--version", action="version", version=f"gristmill {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    run = commands.add_parser("run", help="run a pipeline", description="Run a pipeline.", epilog=TARGET)
    run.add_argument("target", metavar="TARGET")
    run.add_argument("--executor", choices=EXECUTORS, help="what runs it (default: as in the file, or local)")
    _add_set(run)
    run.add_argument("--dry-run", action="store_true", help="show the steps, the input and the output; run nothing")
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="resume an earlier run (the default)")
    again.add_argument("--fresh", action="store_true", help="remove the output of earlier runs and start over")
    run.add_argument("--append", action="store_true", help="process files that are new in the input")
    run.add_argument("--retry-failed", action="store_true", help="process failed documents again")
    run.add_argument("--no-verify", action="store_true", help="resume without comparing checksums of earlier output")
    run.add_argument("--allow-empty", action="store_true", help="succeed even if no document is kept")
    run.add_argument(
        "--limit", type=_COUNT, metavar="N", help="read only the first N documents (of the sample, if there is one)"
    )
    run.add_argument(
        "--sample",
        type=_FRACTION,
        metavar="F",
        help="read only this fraction of the documents, always the same ones: 0.01",
    )
    run.add_argument("--cpus", type=_NUMBER, metavar="N", help="CPUs to use (default: those of the machine)")
    run.add_argument("--gpus", type=_NATURAL, metavar="N", help="GPUs to use; a count above the hardware's is allowed")
    run.add_argument("--memory-limit", type=_SIZE, metavar="SIZE", help="memory for the run, such as 8GB or 512MiB")
    run.add_argument("--batch", action="store_true", help="finish each step before the next begins")
    run.add_argument("--ignore-failures", action="store_true", help="succeed even if tasks failed; they are reported")
    run.add_argument("--view", choices=("auto", "live", "lines", "off"), help="how to watch the run (default: auto)")
    run.add_argument("--dashboard", action="store_true", help="serve a page that shows the run, and print its address")
    run.add_argument(
        "--dashboard-port",
        type=_PORT,
        metavar="N",
        help="the port of the page; implies --dashboard (default: any free)",
    )
    run.add_argument(
        "--dashboard-host",
        metavar="HOST",
        help="the address that serves the page; implies --dashboard (default: 127.0.0.1; others ask for a token)",
    )
    run.add_argument(
        "--no-dashboard-text", action="store_true", help="show no texts of documents on the page, only ids and reasons"
    )
    run.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write a report beside the output (default: if a stage writes)",
    )
    run.add_argument("--no-fuse", action="store_true", help="run each stage as a step of its own")
    run.add_argument(
        "--profile",
        metavar="FILE",
        help="measurements of an earlier run, for a balanced start; 'auto' takes them from the profile store",
    )
    run.add_argument("--no-profile-store", action="store_true", help="keep this run's measurements out of the store")
    run.add_argument("--save-profile", metavar="FILE", help="write the measurements of this run, for --profile")
    run.add_argument("--save-load", metavar="FILE", help="write this run as a load for the simulator")

    metrics.add_run_options(run)

    explain = commands.add_parser(
        "explain",
        help="replay one document and show each stage's verdict",
        description="Replay one document of a finished or unfinished run, and show each stage's input and verdict.",
    )
    explain.add_argument("output", metavar="OUTPUT", help="the output folder of the run")
    explain.add_argument("id", metavar="ID", help="the value of the document's id field, or FILE#POSITION")
    explain.add_argument("--id-field", default="id", metavar="FIELD", help="the field with the id (default: id)")
    explain.add_argument("--pipeline", metavar="TARGET", help="the pipeline, if the output has not stored it")

    dropped = commands.add_parser(
        "dropped",
        help="count the documents that a run dropped, and show examples",
        description="Count the documents that a run dropped, by stage and reason. With --reason or --stage, show some "
        "of them: stage, reason, score, id and the beginning of the text.",
    )
    dropped.add_argument("output", metavar="OUTPUT", help="the output folder of the run")
    dropped.add_argument("--reason", metavar="REASON", help="the reason, or a part of it")
    dropped.add_argument("--stage", metavar="STAGE", help="the name of the stage, or a part of it")
    dropped.add_argument("-n", dest="number", type=_COUNT, default=5, metavar="N", help="how many (default: 5)")
    dropped.add_argument("--id-field", default="id", metavar="FIELD", help="the field with the id (default: id)")
    dropped.add_argument(
        "--text-field", metavar="FIELD", help="the field with the text (default: the one that the run has read)"
    )

    report = commands.add_parser(
        "report",
        help="make the report of a run again, from its record and its output",
        description="Make the report of a run again, as one HTML file, from its record and its output. It also works "
        "for a run that was killed or is still running, and reads more examples than the run itself. No code of the "
        "pipeline runs.",
    )
    report.add_argument("output", metavar="RUN", help="the output folder of the run")
    report.add_argument("--open", action="store_true", help="open it in the browser")
    report.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="where to write it (default: RUN/_gristmill/report.html); FILE.json gets the data instead",
    )

    diff = commands.add_parser(
        "diff",
        help="compare two runs: configuration, input, documents, speed",
        description="Compare two runs: configuration, input, versions, documents by stage and reason, speed, and "
        "documents that one run kept and the other dropped. No code of the pipelines runs.",
    )
    diff.add_argument("one", metavar="RUN_A", help="the output folder of a run")
    diff.add_argument("other", metavar="RUN_B", help="the output folder of the other run")
    diff.add_argument("--html", metavar="FILE", help="write the comparison as an HTML file instead")
    diff.add_argument("--id-field", default="id", metavar="FIELD", help="the field with the id (default: id)")

    what_if = commands.add_parser(
        "what-if",
        help="show the funnel of a run with other thresholds, without a run",
        description="Show the funnel of a run with other thresholds, from the scores that it has stored, with examples "
        "of documents that would come back or go. Nothing is written.",
    )
    what_if.add_argument("output", metavar="OUTPUT", help="the output folder of the run")
    what_if.add_argument(
        "change", metavar="STAGE.RULE.ARGUMENT=VALUE", nargs="*", help="a threshold and its value; may be repeated"
    )
    what_if.add_argument(
        "-n", dest="number", type=_NATURAL, default=3, metavar="N", help="how many examples (default: 3)"
    )
    what_if.add_argument("--json", action="store_true", help="print everything as JSON")
    what_if.add_argument(
        "--pipeline",
        metavar="TARGET",
        help="the pipeline of the run, if the output has not stored it; its code runs on documents that come back",
    )

    stats = commands.add_parser(
        "stats",
        help="show distributions of documents: length, domain, language, any field",
        description="Show distributions of the documents in files, folders or the output of a run: characters, words, "
        "bytes, domains, languages, any fields, and the scores of a run. Memory does not grow with the documents.",
    )
    stats.add_argument("path", metavar="PATH", nargs="+", help="JSONL or Parquet files, or folders with such files")
    stats.add_argument("--field", action="append", default=[], metavar="FIELD", help="also this field; may be repeated")
    stats.add_argument("--by", metavar="FIELD", help="group the documents by a field, or by 'file'")
    stats.add_argument("--language", action="store_true", help="find the language of each document (extra 'text')")
    stats.add_argument(
        "--text-field",
        metavar="FIELD",
        help="the field with the text (default: text, or for an output the one that the run has read)",
    )
    stats.add_argument("--url-field", default="url", metavar="FIELD", help="the field with the address (default: url)")
    stats.add_argument("--limit", type=_COUNT, metavar="N", help="read only the first N documents")
    stats.add_argument("--sample", type=_FRACTION, metavar="F", help="read only this fraction of the documents")
    stats.add_argument("--html", metavar="FILE", help="also write the distributions as a page with drawings")
    stats.add_argument("--json", action="store_true", help="print everything as JSON")

    llm_cache = commands.add_parser(
        "llm-cache",
        help="show and prune the stored answers of language models",
        description="Show the request cache of an output, and remove answers from it. A run must not be using it.",
    )
    llm_cache.add_argument("folder", metavar="FOLDER", help="the output folder of a run, or the folder of a cache")
    words = "remove the oldest answers until the file has this size, such as 10GB"
    llm_cache.add_argument("--max-size", type=_SIZE, metavar="SIZE", help=words)
    llm_cache.add_argument("--older-than", type=_NUMBER, metavar="DAYS", help="remove answers older than this")

    verify = commands.add_parser(
        "verify",
        help="compare an output with its log: checksums and numbers of documents",
        description="Compare the files of an output with its log: checksums and numbers of documents. Print what is "
        "missing, damaged or unexpected. The exit status is 1 if anything is, and 2 if OUTPUT is not the output of a "
        "run, or a run is writing to it.",
    )
    verify.add_argument("output", metavar="OUTPUT", help="the output folder of the run")

    plan = commands.add_parser(
        "plan",
        help="show the steps of a pipeline, or forecast its run on any cluster",
        description="Check a pipeline and show its steps. With any of the options for a job, measure a sample of it "
        "on this machine, and forecast time, memory and disk of the whole job.",
        epilog=TARGET,
    )
    plan.add_argument("target", metavar="TARGET")
    _add_set(plan)
    add_plan_options(plan)

    metrics.add_command(commands)

    init = commands.add_parser(
        "init",
        help="write an example pipeline and a small corpus",
        description="Write pipeline.yaml, with comments, and a small corpus that it runs on. Nothing is overwritten.",
    )
    init.add_argument("path", metavar="PATH", nargs="?", default=".", help="the folder (default: this one)")
    init.add_argument("--images", action="store_true", help="an example with images instead of texts (extra 'image')")
    init.add_argument("--video", action="store_true", help="an example with videos (extras 'video' and 'models')")

    stages = commands.add_parser(
        "stages",
        help="list stages, filters, modifiers and recipes",
        description="List what a pipeline can be made of, with parameters. NAME documents one of them; a prefix, "
        "such as Jsonl, lists all whose names begin with it.",
    )
    stages.add_argument("name", metavar="NAME", nargs="?")
    stages.add_argument(
        "--imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="also list the classes registered by this module, Python file or pipeline file; may be repeated",
    )

    simulate = commands.add_parser(
        "simulate",
        help="play a load on a cluster in virtual time",
        description="Play a load on a cluster in virtual time, under the scheduler that would run it, and show how "
        "long it takes, what each stage's workers did and why.",
        epilog=LOAD,
    )
    simulate.add_argument("load", metavar="LOAD.json")
    simulate.add_argument("--seed", type=_NATURAL, default=1, metavar="N", help="random seed (default: 1)")
    simulate.add_argument(
        "--nodes",
        metavar="NODES",
        help="other nodes than the load's: 8x96c8g, or 8x96c8g,4x64c; with 4 GB a CPU and 80 GB a GPU",
    )
    simulate.add_argument("--inputs", type=_COUNT, metavar="N", help="another number of inputs than the load's")
    simulate.add_argument("--profile", metavar="PROFILE.json", help="measurements of the stages from an earlier run")
    simulate.add_argument("--json", action="store_true", help="print everything as JSON")
    simulate.add_argument("--width", type=_WIDTH, metavar="N", help="columns (default: the terminal's, or 80)")
    return parser, commands.choices


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.KEY=VALUE",
        help="change an argument of a stage of pipeline.yaml, by the stage's name or number, or of 'executor' or "
        "'ray_client'; may be repeated",
    )


if __name__ == "__main__":
    sys.exit(main())
