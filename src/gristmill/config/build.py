"""Objects from the values of a file. Arguments are checked against the constructor before it is called."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from gristmill.config import signatures
from gristmill.config.items import TARGET
from gristmill.config.names import ClassNames
from gristmill.config.nodes import Node, Problems
from gristmill.config.paths import located, may_name_path, names_path
from gristmill.errors import PipelineError
from gristmill.near_names import did_you_mean, near


class Builder:
    """Makes the objects that a file names. Errors go to ``problems``; then the result is None, or lacks a value."""

    def __init__(self, names: ClassNames, problems: Problems, folder: Path | None = None) -> None:
        self.names = names
        self.problems = problems
        self.folder = None if folder is None else str(folder.resolve())
        """The folder of the file, where relative paths begin; None is the current folder."""

    def make(self, cls: Callable[..., Any], given: dict[str, Node], where: str) -> Any:
        """Call a class or function with arguments of the file; None if they do not fit."""
        before = len(self.problems.lines)
        known = signatures.parameters(cls)
        open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
        named = {name: p for name, p in known.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        arguments: dict[str, Any] = {}
        for name, node in given.items():
            if name in named:
                hint = signatures.hint_of(cls, named[name])
                arguments[name] = self.value(self._located(node, cls, named[name]), hint, f"{cls.__name__}: {name!r}")
            elif open_ended:
                arguments[name] = self.plain(node)
            else:
                listed = f"It takes: {', '.join(named)}." if named else "It takes none."
                hint = did_you_mean(name, named, listed)
                self.problems.add(node.where, f"{cls.__name__} has no argument {name!r}.{hint}")
        misspelt = {near(name, named) for name in given if name not in named}
        missing = [name for name, p in named.items() if p.default is p.empty and name not in {*arguments, *misspelt}]
        for name in missing:
            hint = signatures.hint_of(cls, named[name])
            words = "" if hint is Any else f", {signatures.words(hint)}"
            self.problems.add(where, f"{cls.__name__} needs the argument {name!r}{words}")
        if inspect.isabstract(cls):
            self.problems.add(where, f"{cls.__name__} is abstract: name one of its subclasses")
        if len(self.problems.lines) > before:
            return None
        try:
            return cls(**arguments)
        except (TypeError, ValueError, OSError, PipelineError) as error:
            text = (
                f"{error.filename!r}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
            )
            self.problems.add(where, text if text.startswith(cls.__name__) else f"{cls.__name__}: {text}")
            return None

    def _located(self, node: Node, cls: Callable[..., Any], parameter: inspect.Parameter) -> Node:
        """Return an argument; if it is a path, or a list of paths, relative to the folder of the file."""
        if self.folder is None:
            return node
        if names_path(cls, parameter):
            return node.located(self.folder)
        if may_name_path(parameter.name) and isinstance(node.value, str):
            return node.located(self.folder) if os.path.exists(located(node.value, self.folder)) else node
        return node

    def value(self, node: Node, hint: Any, what: str) -> Any:
        """Return the value of an argument, converted to its annotation."""
        options = signatures.options(hint)
        if any(signatures.anything(one) for one in options):
            return self.plain(node)
        fitting = [one for one in options if self._fits(node, one)]
        if not fitting:
            self.problems.add(node.where, f"{what} wants {signatures.words(hint)}, not {node.kind()}.{_advice(node)}")
            return None
        for one in fitting[:-1]:
            trial = Builder(self.names, Problems())
            trial.folder = self.folder
            made = trial._convert(node, one, what)
            if not trial.problems:
                return made
        return self._convert(node, fitting[-1], what)

    def plain(self, node: Node) -> Any:
        """Return a value without annotation: plain, or an object if it names a class."""
        if self._names_object(node):
            return self.object(node, object, "it")
        if isinstance(node.value, dict):
            return {key: self.plain(child) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self.plain(child) for child in node.value]
        return node.value

    def object(self, node: Node, base: type, what: str) -> Any:
        """Make an instance of the class that is named: ``Name``, ``{Name: {...}}`` or ``{_target_: path, ...}``."""
        named = self.split(node, what)
        if named is None:
            return None
        cls, given, where = named
        if not issubclass(cls, base):
            self.problems.add(where, f"{what} wants a {base.__name__}, and {cls.__name__} is none")
            return None
        return self.make(cls, given, where)

    def split(self, node: Node, what: str) -> tuple[type, dict[str, Node], str] | None:
        """Return the class that is named, its arguments and their place."""
        if isinstance(node.value, str):
            cls = self.names.find(node.value, node.where, self.problems, "the name")
            return (cls, {}, node.where) if cls else None
        if isinstance(node.value, dict) and TARGET in node.value:
            rest = {key: child for key, child in node.value.items() if key != TARGET}
            target = node.value[TARGET]
            cls = self.names.find_target(target, self.problems)
            return (cls, rest, target.where) if cls else None
        if isinstance(node.value, dict) and len(node.value) == 1:
            ((name, body),) = node.value.items()
            cls = self.names.find(name, body.where, self.problems, "the name")
            arguments = self.arguments(body, name)
            return None if cls is None or arguments is None else (cls, arguments, body.where)
        self.problems.add(node.where, f"{what} wants an object: write {{Name: {{arguments}}}}, not {node.kind()}")
        return None

    def arguments(self, node: Node, name: str) -> dict[str, Node] | None:
        """Return the arguments of ``Name: {...}``. ``Name:`` has none."""
        if node.value is None:
            return {}
        if isinstance(node.value, dict):
            return node.value
        self.problems.add(node.where, f"{name} wants its arguments as a mapping, {{name: value}}, not {node.kind()}")
        return None

    def _names_object(self, node: Node) -> bool:
        if not isinstance(node.value, dict):
            return False
        return TARGET in node.value or (len(node.value) == 1 and next(iter(node.value)) in self.names.known())

    def _fits(self, node: Node, hint: Any) -> bool:
        """Whether a value has the shape of a hint, which is no union."""
        value = node.value
        if get_origin(hint) is Literal:
            return any(value == one and type(value) is type(one) for one in get_args(hint))
        if hint in (None, type(None)):
            return value is None
        if signatures.is_list(hint):
            return isinstance(value, list)
        if signatures.is_mapping(hint):
            return isinstance(value, dict) and not self._names_object(node)
        if signatures.is_function(hint):
            return False
        if signatures.is_object(hint):
            return isinstance(value, dict | str)
        if hint is bool:
            return isinstance(value, bool)
        if hint in (int, float):
            return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
        return isinstance(value, str)  # text, or a path

    def _convert(self, node: Node, hint: Any, what: str) -> Any:
        if signatures.is_list(hint) and isinstance(node.value, list):
            members = get_args(hint)
            member = members[0] if members else Any
            made = [self.value(child, member, f"{what}[{i}]") for i, child in enumerate(node.value)]
            kind = get_origin(hint) or hint
            return kind(made) if kind in (tuple, set, frozenset) else made
        if signatures.is_mapping(hint) and isinstance(node.value, dict):
            members = get_args(hint)
            member = members[1] if len(members) == 2 else Any
            return {key: self.value(child, member, f"{what}[{key!r}]") for key, child in node.value.items()}
        if signatures.is_object(hint):
            cls: Any = get_origin(hint) or hint
            by_fields = dataclasses.is_dataclass(cls) and not self._names_object(node)
            if by_fields and isinstance(node.value, dict):
                return self.make(cls, node.value, node.where)
            return self.object(node, cls, what)
        return node.value


def _advice(node: Node) -> str:
    if isinstance(node.value, str) and node.value.lower() in ("yes", "no", "on", "off"):
        return " Write true or false."
    if isinstance(node.value, int | float | bool):
        return " Put it in quotes if it is text."
    return ""
