"""A pipeline from YAML.

name: clean
stages:
  - JsonlReader: {file_paths: input/, blocksize: 64MB}
  - recipe: gopher-quality
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 50}}, score_field: words}
    name: long_enough               # the name of the stage
    with: {resources: {cpus: 2}}    # the arguments of `with_`
  - JsonlWriter: {path: out/}
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.backends.base import Executor
from gristmill.backends.executors import EXECUTORS, executor_class
from gristmill.config import signatures
from gristmill.config.build import Builder
from gristmill.config.items import TARGET, StageItem, stage_item
from gristmill.config.names import ClassNames, import_modules
from gristmill.config.nodes import Node, Problems, read
from gristmill.config.override import override, override_sections
from gristmill.errors import PipelineError, PlanError
from gristmill.near_names import did_you_mean
from gristmill.stages.core import CompositeStage, ProcessingStage

if TYPE_CHECKING:
    from gristmill.core.client import RayClient

ROOT = ("name", "description", "imports", "executor", "ray_client", "stages")
RAY_CLIENTS = ("gristmill.core.client.RayClient", "nemo_curator.core.client.RayClient")
"""The values of `_target_` for the client. The second is that of pipelines written for NeMo Curator."""
MOST_BYTES = 4 << 20

Stage = ProcessingStage[Any, Any]


@dataclass(frozen=True)
class ExecutorChoice:
    """The executor of a pipeline and its options."""

    name: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineFile:
    """The content of a pipeline file, checked."""

    name: str
    description: str | None
    stages: list[Stage]
    executor: ExecutorChoice | None = None
    ray_client: RayClient | None = None
    imports: tuple[str, ...] = ()
    """Modules outside gristmill that the file names under ``imports``; they have been imported."""


def load(
    source: str | Path,
    overrides: Sequence[str] = (),
    announce: Callable[[str], None] | None = None,
    executor: str | None = None,
) -> PipelineFile:
    """Read a pipeline from a file or a text. Raises `PipelineFileError` with all problems.

    A single line that ends in .yaml or .yml is the name of a file. Relative paths in a file begin at the folder of the
    file; in a text, and in ``overrides``, at the current folder.
    ``overrides`` are as for ``--set``: ``stage.key=value``. ``announce`` is called with the name of each module
    outside gristmill before it is imported. ``executor`` replaces the one that the file names.
    """
    problems = Problems()
    path = Path(source) if isinstance(source, Path) or is_file_name(source) else None
    entries, where = _root(source, path, problems)
    overrides = override_sections(entries, overrides, executor, problems)
    return _pipeline(entries, where, path, overrides, announce, problems)


def import_of_file(path: Path) -> list[str]:
    """Import the modules that a pipeline file names under ``imports``, and return their names."""
    problems = Problems()
    entries, _ = _root(path, path, problems)
    names = import_modules(entries.get("imports"), path.parent, None, problems)
    problems.check()
    return names


def _root(source: str | Path, path: Path | None, problems: Problems) -> tuple[dict[str, Node], str]:
    """Return the mapping of a pipeline, and its place."""
    text = str(source) if path is None else _read_file(path, problems)
    root = read(text, "<text>" if path is None else str(path), problems)
    problems.check()
    assert root is not None
    if not isinstance(root.value, dict):
        problems.add(root.where, f"a pipeline is a mapping with a list of 'stages', not {root.kind()}")
        problems.check()
    assert isinstance(root.value, dict)
    return root.value, root.where


def is_file_name(text: str) -> bool:
    return "\n" not in text and text.endswith((".yaml", ".yml"))


def _read_file(path: Path, problems: Problems) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a FIFO would block
            problems.add(str(path), "it is not a regular file: a pipeline is read from a file")
        elif found.st_size > MOST_BYTES:
            problems.add(str(path), f"the file is larger than {MOST_BYTES >> 20} MB: that is no pipeline")
        problems.check()
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        there = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        problems.add(str(path), f"there is no such file.{did_you_mean(path.name, there)}")
    except UnicodeDecodeError as error:
        problems.add(str(path), f"the file is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}")
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        problems.add(str(path), f"the file cannot be read: {reason}")
    problems.check()
    raise AssertionError("a problem was added")


def _pipeline(
    root: dict[str, Node],
    where: str,
    path: Path | None,
    overrides: Sequence[str],
    announce: Callable[[str], None] | None,
    problems: Problems,
) -> PipelineFile:
    listed = f"It has: {', '.join(ROOT)}."
    for key, node in root.items():
        if key not in ROOT:
            problems.add(node.where, f"a pipeline has no {key!r}.{did_you_mean(key, ROOT, listed)}")
    name = _text(root, "name", path.stem if path else "pipeline", problems)
    description = _text(root, "description", None, problems)
    imports = import_modules(root.get("imports"), path.parent if path else None, announce, problems)
    builder = Builder(ClassNames(imports), problems, path.parent if path else None)
    executor = _executor(root.get("executor"), builder)
    ray_client = _ray_client(root["ray_client"], builder) if "ray_client" in root else None
    listed_stages = root["stages"].value if "stages" in root else None
    if not isinstance(listed_stages, list) or not listed_stages:
        if "stages" in root or not problems:
            at = root["stages"].where if "stages" in root else where
            problems.add(at, "a pipeline needs 'stages': a list with at least one")
        problems.check()
    assert isinstance(listed_stages, list)
    items = [stage_item(node, problems) for node in listed_stages]
    override(items, overrides, problems)
    stages = [_stage(item, builder) for item in items if item]
    problems.check()
    made = [stage for stage in stages if stage]
    return PipelineFile(name or "pipeline", description, made, executor, ray_client, tuple(imports))


def _text(root: dict[str, Node], key: str, default: str | None, problems: Problems) -> str | None:
    node = root.get(key)
    if node is None or node.value is None:
        return default
    if isinstance(node.value, str) and node.value:
        return node.value
    problems.add(node.where, f"{key!r} wants text, not {node.kind()}")
    return default


def _stage(item: StageItem, builder: Builder) -> Stage | None:
    if item.is_recipe:
        return _with(builder, _recipe(builder, item.arguments), item.settings)
    name, where, problems = str(item.named.value), item.named.where, builder.problems
    arguments = builder.arguments(item.arguments, name)
    if item.is_target:
        cls = builder.names.find_target(item.named, problems)
    else:
        cls = builder.names.find(name, where, problems) if arguments is not None else None
    if cls is None or arguments is None:
        return None
    if not issubclass(cls, ProcessingStage):
        from gristmill.config.examples import stage_with  # only an error needs it

        problems.add(where, f"{cls.__name__!r} is not a stage: it goes into one, as an argument{stage_with(cls)}")
        return None
    return _with(builder, builder.make(cls, arguments, where), item.settings)


def _recipe(builder: Builder, body: Node) -> Stage | None:
    from gristmill.stages.text.recipes import recipe

    given = {"name": body} if isinstance(body.value, str) else builder.arguments(body, "recipe")
    return None if given is None else builder.make(recipe, given, body.where)


def _with(builder: Builder, stage: Stage | None, settings: dict[str, Node]) -> Stage | None:
    """Apply the arguments of `with_`: one mapping, or a list of several."""
    if stage is None:
        return None
    if "name" in settings:
        stage = _changed(builder, stage, {"name": settings["name"]}, settings["name"].where)
    node = settings.get("with")
    for change in node.value if node and isinstance(node.value, list) else [node] if node else []:
        if not isinstance(change.value, dict):
            builder.problems.add(change.where, f"'with' wants a mapping of settings, not {change.kind()}")
        elif stage is not None:
            stage = _changed(builder, stage, change.value, change.where)
    return stage


def _changed(builder: Builder, stage: Stage, given: dict[str, Node], where: str) -> Stage | None:
    problems = builder.problems
    known = {name: p for name, p in signatures.parameters(ProcessingStage.with_).items() if name != "self"}
    before = len(problems.lines)

    def checked(settings: dict[str, Node]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for key, node in settings.items():
            if key in known:
                hint = signatures.hint_of(ProcessingStage.with_, known[key])
                changes[key] = builder.value(node, hint, f"with: {key!r}")
            elif key == "stages" and isinstance(stage, CompositeStage) and isinstance(node.value, dict):
                changes[key] = {n: checked(c.value) for n, c in node.value.items() if isinstance(c.value, dict)}
            else:
                listed = f"There are: {', '.join(known)}."
                problems.add(node.where, f"there is no setting {key!r}.{did_you_mean(key, known, listed)}")
        return changes

    changes = checked(given)
    if len(problems.lines) > before:
        return None
    try:
        if "stages" in changes:
            by_name = changes.pop("stages")
            assert isinstance(stage, CompositeStage)
            return stage.with_(by_name, **changes)
        return stage.with_(**changes)
    except (TypeError, ValueError) as error:
        problems.add(where, str(error))
        return None


def _executor(node: Node | None, builder: Builder) -> ExecutorChoice | None:
    """``local``, or ``{local: {num_cpus: 4}}``."""
    if node is None or node.value is None:
        return None
    problems = builder.problems
    body: Node | None = None
    name: object = node.value
    if isinstance(node.value, dict) and len(node.value) == 1:
        ((name, body),) = node.value.items()
    if not isinstance(name, str):
        problems.add(node.where, f"executor is a name, or {{name: {{options}}}}, not {node.kind()}")
        return None
    if name not in EXECUTORS:
        listed = f"There are: {', '.join(EXECUTORS)}."
        problems.add(node.where, f"executor {name!r} is not known.{did_you_mean(name, EXECUTORS, listed)}")
        return None
    options = (builder.arguments(body, name) if body else {}) or {}
    plain = {key: child.plain() for key, child in options.items()}
    profile = options.get("profile")
    if profile is not None and builder.folder is not None:
        plain["profile"] = profile.located(builder.folder).plain()
    choice = ExecutorChoice(name, plain)
    if options:
        _check_options(choice, options, problems)
    return choice


def _check_options(choice: ExecutorChoice, options: Mapping[str, Node], problems: Problems) -> None:
    try:
        make: Callable[..., Executor] = executor_class(choice.name)
    except PlanError:  # a package is not installed: that is an error of a run, not of reading the file
        return
    for key, value in choice.options.items():  # one by one, each with its line
        try:
            make(config={key: value})
        except PipelineError as error:
            problems.add(options[key].where, str(error))


def _ray_client(node: Node, builder: Builder) -> RayClient | None:
    """Make a `RayClient` of its arguments. A ``_target_`` with its path may stand beside them."""
    from gristmill.core.client import RayClient

    given = builder.arguments(node, "ray_client")
    if given is None:
        return None
    target = given.get(TARGET)
    if target is not None and target.value not in RAY_CLIENTS:
        builder.problems.add(target.where, f"ray_client is a {RAY_CLIENTS[0]}, not {target.kind()}")
        return None
    arguments = {key: child for key, child in given.items() if key != TARGET}
    made: RayClient | None = builder.make(RayClient, arguments, node.where)
    return made
