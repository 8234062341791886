"""``gristmill run`` and ``gristmill plan``, for a Python target or a YAML file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gristmill.cli import metrics
from gristmill.cli.target import UsageError, load_pipeline
from gristmill.secrets import public_url, without_secrets

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.ledger.resume import ResumeOptions
    from gristmill.pipeline import Pipeline
    from gristmill.pipeline.monitoring import DashboardOptions
    from gristmill.pipeline.result import RunResult
    from gristmill.stages.core import ProcessingStage
    from gristmill.tasks import Task


OK, FAILED, INTERRUPTED = 0, 1, 130


def run(args: argparse.Namespace) -> int:
    from gristmill.errors import PipelineError, PipelineFailed
    from gristmill.ledger.resume import ResumeOptions

    try:
        for path in filter(None, (args.save_profile, args.save_load)):
            _check_folder(path)
        pipeline, tasks = load(args.target, args.set, args.executor)
        if args.save_load:
            _check_one_piece(pipeline)
        limit_input(pipeline, tasks is not None, args.limit, args.sample)
        if args.profile == "auto":
            from gristmill.pipeline.profiles.lookup import stored_profile

            args.profile = stored_profile(pipeline)
        executor = pipeline.make_executor(args.executor, **executor_config(args))
        how = ResumeOptions(args.fresh, args.append, args.retry_failed, not args.no_verify)
        if args.dry_run:
            return dry_run(pipeline, tasks, executor, how)
        options = {"fuse": not args.no_fuse, "allow_empty": args.allow_empty, **asdict(how), **watching(args, pipeline)}
        options["profile_store"] = not args.no_profile_store
        result = pipeline.run(executor, tasks, **options)
    except PipelineError as error:
        if isinstance(error, PipelineFailed) and error.result is not None:
            _print_result(error.result)
        return _say(error)
    _print_result(result)
    try:
        if args.save_profile:
            result.profile().write(args.save_profile)
        if args.save_load:
            result.load().write(args.save_load)
    except (OSError, PipelineError) as error:
        return _say(error)
    return INTERRUPTED if result.record.interrupted else OK


def wants_report(asked: bool | None, pipeline: Pipeline) -> bool:
    """Return whether a run writes a report: by default if a stage writes."""
    from gristmill.pipeline.planner import flatten
    from gristmill.stages.protocols import Sink

    return any(isinstance(stage, Sink) for stage in flatten(pipeline.stages)) if asked is None else asked


def _print_result(result: RunResult) -> None:
    from gristmill.pipeline.text_layout import near_path

    print(result.summary())
    if result.report is not None:
        print(f"report: {near_path(result.report)}")


def plan(args: argparse.Namespace) -> int:
    from gristmill.errors import PipelineError, PlanError

    try:
        pipeline, _ = load(args.target, args.set)
    except PipelineError as error:
        return _say(error)
    print(pipeline.describe())
    try:
        pipeline.plan()
    except PlanError:  # the description contains the error
        return FAILED
    return OK


def load(
    target: str, overrides: Sequence[str], executor: str | None = None
) -> tuple[Pipeline, Iterable[Task[Any]] | None]:
    """Return the pipeline that a target names, and its initial tasks if it has any."""
    if not target.endswith((".yaml", ".yml")):
        if overrides:
            raise UsageError(f"--set is for pipelines in YAML; {target} is Python: change it there")
        if os.path.isdir(target) and not os.path.exists(os.path.join(target, "__init__.py")):
            inside = sorted(name for name in os.listdir(target) if name.endswith((".yaml", ".yml")))
            example = f", such as {os.path.join(target, inside[0])}" if inside else ""
            raise UsageError(f"{target} is a folder: name the file of the pipeline{example}")
        if os.path.isfile(target) and not target.endswith(".py"):
            raise UsageError(f"{target} is no pipeline: name a YAML file (.yaml), a Python file (.py) or a module")
        return load_pipeline(target)
    from gristmill.config.load import load as load_file
    from gristmill.errors import PipelineFileError
    from gristmill.pipeline import Pipeline

    def announce(module: str) -> None:
        print(f"{target} imports {module}", flush=True)

    try:
        return Pipeline.of_file(load_file(target, overrides, announce, executor)), None
    except PipelineFileError as error:
        raise UsageError(str(error), has_place=True) from error


def limit_input(pipeline: Pipeline, has_tasks: bool, limit: int | None, sample: float | None) -> None:
    """Make the pipeline's reader read fewer documents, if an option limits them."""
    if limit is None and sample is None:
        return
    from gristmill.pipeline.planner import flatten
    from gristmill.stages.text.io.reader.base import FileReader

    first = flatten(pipeline.stages[:1])
    reader = first[0] if first else None
    if has_tasks or not isinstance(reader, FileReader):
        raise UsageError("--limit and --sample are for pipelines that begin with a reader, such as JsonlReader")
    pipeline.stages[:1] = [reader.limited(limit, sample), *first[1:]]


def dry_run(pipeline: Pipeline, tasks: Iterable[Task[Any]] | None, executor: Executor, how: ResumeOptions) -> int:
    """Print the steps, the input, the changes to the output, and the cost of deduplication."""
    from gristmill.errors import PipelineError, PlanError
    from gristmill.pipeline.phases.forecast import forecasts
    from gristmill.pipeline.planner import flatten
    from gristmill.pipeline.preview import preview
    from gristmill.stages.protocols import Source

    print(pipeline.describe())
    try:
        plan = pipeline.plan()
        stages = flatten(pipeline.stages)
        lines = [] if tasks is not None else list(forecasts(stages, executor))
        reader = stages[0] if tasks is None and isinstance(stages[0], Source) else None
        part = "" if tasks is not None else describe_limits(stages)
        if reader is not None:
            tasks = reader.source()
    except PlanError as error:
        return _say(error)
    print(f"input: {describe_inputs(tasks)}{part}")
    for folder in output_folders(pipeline.stages):
        print(f"output: {folder}")
    try:
        found = [] if reader is None else preview(pipeline, plan, reader, executor, how)
    except PipelineError as error:
        print("output: the run would be refused")
        return _say(error)
    for line in [*(f"the run would {line}" for line in found[:1]), *found[1:]]:
        print(f"output: {without_secrets(line)}")
    for line in lines:
        print(f"forecast: {line}")
    print("nothing was run")
    return OK


def executor_config(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as the executor's configuration. Options that are not given keep its defaults."""
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


def watching(args: argparse.Namespace, pipeline: Pipeline) -> dict[str, Any]:
    """Return what watches the run, as arguments of `Pipeline.run`."""
    return {
        "dashboard": _dashboard(args),
        "metrics_port": metrics.options_of(args),
        "report": wants_report(args.report, pipeline),
    }


def _dashboard(args: argparse.Namespace) -> bool | DashboardOptions:
    from gristmill.pipeline.monitoring import LOOPBACK, DashboardOptions

    if not (args.dashboard or args.dashboard_port is not None or args.dashboard_host is not None):
        if args.no_dashboard_text:
            raise UsageError("--no-dashboard-text is for a run with --dashboard: add it, or leave both out")
        return False
    host = LOOPBACK if args.dashboard_host is None else args.dashboard_host
    return DashboardOptions(host, args.dashboard_port or 0, not args.no_dashboard_text)


def _check_folder(path: str) -> None:
    """Raise an error before a long run if its results could not be written."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{path} cannot be written: there is no folder {folder}")
    if os.path.isdir(path):
        raise UsageError(f"{path} cannot be written: it is a folder")


def _check_one_piece(pipeline: Pipeline) -> None:
    """Raise an error before the run if it cannot be saved as a load."""
    from gristmill.pipeline.planner import flatten
    from gristmill.stages.barrier import BarrierStage

    for stage in flatten(pipeline.stages):
        if isinstance(stage, BarrierStage):
            raise UsageError(
                f"--save-load is for pipelines whose steps all run at the same time, and {stage.name!r} needs all "
                "documents first: run without --save-load. --save-profile works"
            )


def _say(error: Exception) -> int:
    print(f"gristmill: {without_secrets(str(error))}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(without_secrets(note), file=sys.stderr)
    return FAILED


def describe_inputs(tasks: Iterable[Task[Any]] | None) -> str:
    """Describe the initial tasks: of a reader, its blocks, files and bytes."""
    from gristmill.metrics.format import size as shown_size
    from gristmill.tasks import FileBlock

    if tasks is None:
        return "none: the first stage makes its own"
    if not isinstance(tasks, Sized):
        return "tasks of the target, as many as it gives"
    blocks: list[FileBlock] = (
        [task for task in tasks if isinstance(task, FileBlock)] if isinstance(tasks, Sequence) else []
    )
    if not blocks or len(blocks) != len(tasks):
        return f"{len(tasks):,} task{'s' * (len(tasks) != 1)}"
    parts = {part.path: part for block in blocks for part in block.data}
    paths = sorted(parts)
    sizes = [None if (stamp := parts[path].stamp) is None else stamp.size for path in paths]
    known = sum(size for size in sizes if size is not None)
    return (
        f"{len(blocks):,} block{'s' * (len(blocks) != 1)} of {len(paths):,} file{'s' * (len(paths) != 1)}, "
        f"{shown_size(known)}{' or more' * (None in sizes)}"
    )


def describe_limits(stages: Sequence[ProcessingStage[Any, Any]]) -> str:
    """Describe which documents of its input a reader reads; empty if it reads all."""
    from gristmill.stages.text.io.reader.base import FileReader

    reader = stages[0] if stages else None
    if not isinstance(reader, FileReader):
        return ""
    first = "" if reader.limit is None else f"the first {reader.limit:,} documents"
    sample = "" if reader.sample is None else f"a sample of {reader.sample:.12g} of the documents"
    words = " of ".join(part for part in (first, sample) if part)
    return f"; reads only {words}" if words else ""


def output_folders(stages: Sequence[ProcessingStage[Any, Any]]) -> Iterator[str]:
    """Yield the folders to which the writers of a pipeline write."""
    from gristmill.stages.core import CompositeStage
    from gristmill.stages.registry import arguments_of

    for stage in stages:
        for leaf in stage.flatten() if isinstance(stage, CompositeStage) else [stage]:
            path = (arguments_of(leaf) or {}).get("path")
            if isinstance(path, str | os.PathLike):
                yield public_url(os.fspath(path))
