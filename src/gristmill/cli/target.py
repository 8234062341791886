"""Find the pipeline that a command line names: ``path/to/file.py[:name]`` or ``package.module[:name]``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gristmill.near_names import near

if TYPE_CHECKING:
    from gristmill.pipeline import Pipeline
    from gristmill.tasks import Task

DEFAULT_NAME = "pipeline"
_OF_FILE = "gristmill_target_"
"""Prefix of the module names of files on the command line."""


class UsageError(Exception):
    """The command line is wrong. The message contains what to do.

    ``has_place``: each line of the message begins with a file and a line number.
    """

    def __init__(self, message: str, has_place: bool = False) -> None:
        super().__init__(message)
        self.has_place = has_place


def load_pipeline(target: str) -> tuple[Pipeline, Iterable[Task[Any]] | None]:
    """Return the pipeline that ``target`` names or that its function returns, and the initial tasks.

    Initial tasks are ``initial_tasks`` of the target's module: None, tasks, or a function that returns them.
    """
    place, name = _split(target)
    with _not_running(place):
        module = _load(place)
        pipeline = _find(module, place, name)
        tasks = vars(module).get("initial_tasks")
        return pipeline, tasks() if inspect.isroutine(tasks) else tasks


def load_module(target: str) -> ModuleType:
    """Return the module of a target, which is a Python file or a module's name. A name after a colon is ignored."""
    place, _ = _split(target)
    with _not_running(place):
        return _load(place)


def shown_module(name: str) -> str:
    """Return the name of a module for people: of a file on the command line, the file's name."""
    return name.removeprefix(_OF_FILE)


def _load(place: str) -> ModuleType:
    return _load_file(Path(place)) if _is_file_name(place) else _load_module(place)


@contextmanager
def _not_running(place: str) -> Iterator[None]:
    """Keep the pipelines of a target from running while it is loaded."""
    from gristmill.pipeline import Pipeline

    def refuse(self: Pipeline, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"{place} runs a pipeline while it is loaded. Run it with 'python {place}', or put the call of run() "
            "under 'if __name__ == \"__main__\":'"
        )

    run = Pipeline.run
    Pipeline.run = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pipeline.run = run  # type: ignore[method-assign]


def _find(module: ModuleType, place: str, name: str) -> Pipeline:
    from gristmill.pipeline import Pipeline

    found = getattr(module, name, None)
    if found is None:
        raise UsageError(f"{place} has no {name!r}. {_suggest(module, place, name)}")
    what = f"{place}:{name}"
    if isinstance(found, Pipeline):
        return found
    if not inspect.isroutine(found):
        raise UsageError(f"{what} is a {type(found).__name__}, not a Pipeline or a function that returns one")
    needed = _required_arguments(found)
    if needed:
        raise UsageError(f"{what} needs arguments ({', '.join(needed)}); name a function that can be called without")
    made = found()
    if not isinstance(made, Pipeline):
        raise UsageError(f"{what}() returned a {type(made).__name__}, not a Pipeline")
    return made


def _split(target: str) -> tuple[str, str]:
    place, colon, name = target.rpartition(":")
    if not colon:
        return target, DEFAULT_NAME
    if not place or not name.isidentifier():
        raise UsageError(f"{target!r} is not a target; write path/to/file.py:name or package.module:name")
    return place, name


def _is_file_name(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _load_file(path: Path) -> ModuleType:
    """Run a file as a module. Its folder is importable, as with ``python file.py``.

    Workers cannot import it under the name it gets here, so its definitions are sent to them by value.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file: a pipeline is read from a file.")
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        close = near(path.name, siblings)
        hint = f" Did you mean {path.parent / close}?" if close else ""
        raise UsageError(f"there is no file {path}.{hint}")
    import cloudpickle

    sys.path.insert(0, str(path.parent.resolve()))
    name = _OF_FILE + "".join(c if c.isalnum() else "_" for c in path.stem)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno}: {error.msg}") from error
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        # A module that the target itself fails to import is the target's own error, not a wrong target.
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        hint = f" Did you mean {name}.py?" if Path(name + ".py").is_file() else ""
        raise UsageError(f"there is no module {error.name!r}.{hint}") from error
    except (TypeError, ValueError) as error:
        if all(part.isidentifier() for part in name.split(".")):
            raise
        raise UsageError(f"{name!r} is neither a .py file nor the name of a module") from error


def _required_arguments(function: object) -> list[str]:
    assert callable(function)
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


def _suggest(module: ModuleType, place: str, name: str) -> str:
    from gristmill.pipeline import Pipeline

    public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    pipelines = [key for key, value in public.items() if isinstance(value, Pipeline)]
    functions = [
        key for key, value in public.items() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    if close := near(name, pipelines + functions):
        return f"Did you mean {place}:{close}?"
    if pipelines:
        return f"It has these pipelines: {', '.join(pipelines)}; write {place}:{pipelines[0]}"
    return "Name a Pipeline, or a function that returns one, after a colon"
