"""A pipeline as YAML that `load` reads as the same pipeline."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import yaml

from gristmill.config.load import ExecutorChoice
from gristmill.config.nodes import SCALARS
from gristmill.config.paths import absolute
from gristmill.errors import PlanError
from gristmill.secrets import public_options, public_value
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.function_definitions import FunctionStage
from gristmill.stages.registry import arguments_of
from gristmill.stages.resources import Resources

if TYPE_CHECKING:
    from gristmill.core.client import RayClient

Stage = ProcessingStage[Any, Any]


@runtime_checkable
class FromRecipe(Protocol):
    """A stage that is written as ``recipe:``."""

    def described(self) -> str | dict[str, Any]: ...


@runtime_checkable
class ScoresDocuments(Protocol):
    """A filter, registered or not."""

    def score_document(self, text: str) -> Any: ...


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Use double quotes for characters that other styles lose, such as U+0085."""
    plain = all(c == "\n" or c.isprintable() for c in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


class _Item(dict[str, Any]):
    """A stage: written in several lines, even if it is small."""


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(
    _Item, lambda dumper, item: dumper.represent_mapping("tag:yaml.org,2002:map", item.items(), False)
)
for _name, _pattern, _first in SCALARS:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)


def dump(
    name: str,
    description: str | None,
    stages: Sequence[Stage],
    executor: ExecutorChoice | None = None,
    ray_client: RayClient | None = None,
    *,
    to_keep: bool = False,
) -> str:
    """Return the YAML of a pipeline. Raises `PlanError` that names all stages which cannot be written, and why.

    ``to_keep`` is for a copy beside the output of a run. It has absolute paths and no secrets: of the options of a
    storage, only its place.
    """
    writer = _Writer(to_keep)
    items = [writer.stage(number, stage) for number, stage in enumerate(stages, 1)]
    if writer.problems:
        lines = "".join(f"\n    {problem}" for problem in writer.problems)
        raise PlanError(f"pipeline {name!r} cannot be written as YAML:{lines}")
    root: dict[str, Any] = {"name": name}
    if description:
        root["description"] = description
    if writer.imports:
        root["imports"] = sorted(writer.imports)
    if executor is not None:
        root["executor"] = {executor.name: dict(executor.options)} if executor.options else executor.name
    if ray_client is not None:
        root["ray_client"] = writer.value(ray_client.arguments(), "ray_client")
    root["stages"] = items
    return yaml.dump(root, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110)


class _Writer:
    def __init__(self, to_keep: bool) -> None:
        self.to_keep = to_keep
        self.problems: list[str] = []
        self.imports: set[str] = set()

    def stage(self, number: int, stage: Stage) -> dict[str, Any]:
        where = f"stage {number} {stage.name!r}"
        if isinstance(stage, FromRecipe):
            item: dict[str, Any] = {"recipe": stage.described()}
        else:
            item = self.object(stage, where) or {}
        return _Item(item | self._settings(stage, where))

    def object(self, made: Any, where: str) -> dict[str, Any] | None:
        """``{Name: {arguments}}`` of an instance of a registered class."""
        arguments = arguments_of(made)
        cls = type(made)
        if arguments is None:
            self.problems.append(f"{where} {_why_not(made)}")
            return None
        if not cls.__module__.startswith("gristmill."):
            if cls.__module__ == "__main__" or cls.__module__.startswith("gristmill_target_"):
                self.problems.append(f"{where}: {cls.__name__} is defined in a script: put it into a module of its own")
            self.imports.add(cls.__module__)
        if self.to_keep:
            arguments = {key: absolute(made, key, value) for key, value in public_options(arguments).items()}
        return {cls.__name__: {key: self.value(value, f"{where}: {key!r}") for key, value in arguments.items()}}

    def value(self, value: Any, where: str) -> Any:
        if isinstance(value, str | PurePath):
            return value if not self.to_keep and isinstance(value, str) else self._text(str(value))
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            shown = public_options(value) if self.to_keep else value
            return {str(key): self.value(child, where) for key, child in shown.items()}
        if isinstance(value, set | frozenset):
            return sorted(self.value(child, where) for child in value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.value(child, where) for child in value]
        if isinstance(value, Resources):
            return {
                f.name: getattr(value, f.name) for f in dataclasses.fields(value) if getattr(value, f.name) != f.default
            }
        if type(value).__module__ == "numpy":
            import numpy as np

            if isinstance(value, np.generic):
                return self.value(value.item(), where)
        return self.object(value, where)

    def _text(self, text: str) -> str:
        return public_value(text) if self.to_keep else text

    def _settings(self, stage: Stage, where: str) -> dict[str, Any]:
        """Return the changes of `with_`: the name, and the rest in its order."""
        settings = dict(stage._settings)
        name = settings.pop("name", None)
        changes: list[dict[str, Any]] = [settings] if settings else []
        if isinstance(stage, CompositeStage):
            changes = [change if only is None else {"stages": {only: change}} for only, change in stage._changes]
        written = [self.value(change, where) for change in changes]
        beside = {} if name is None else {"name": name}
        return beside | ({"with": written[0] if len(written) == 1 else written} if written else {})


def _why_not(made: Any) -> str:
    kind = type(made)
    if isinstance(made, FunctionStage):
        return "is a function: make it a class with @register from gristmill.stages.registry above it"
    if isinstance(made, ProcessingStage | ScoresDocuments):
        return f"is a {kind.__module__}.{kind.__qualname__}, which is not registered: put @register above the class"
    if callable(made) and not isinstance(made, type):
        name = made.__qualname__ if inspect.isroutine(made) else repr(made)
        return f"is the function {name}, which has no name in YAML: use a registered filter or modifier"
    return f"is a {kind.__qualname__}, which is neither a plain value nor registered"
