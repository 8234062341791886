"""YAML as plain values with their places, and the problems of a file, which one error shows together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from gristmill.config.paths import located
from gristmill.errors import PipelineFileError

MOST_NODES = 100_000
"""The most values of a file, with its aliases expanded."""
MOST_DEPTH = 60
MOST_SHOWN = 20
"""The most problems that one error shows."""

Scalar = None | bool | int | float | str


class Problems:
    """Messages, each with its place. `check` raises if there are any."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, where: str, text: str) -> None:
        line = f"{where}: {text}"
        if line not in self.lines:
            self.lines.append(line)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def check(self) -> None:
        if self.lines:
            more = [f"and {len(self.lines) - MOST_SHOWN} more"] if len(self.lines) > MOST_SHOWN else []
            raise PipelineFileError("\n".join(self.lines[:MOST_SHOWN] + more))


@dataclass(slots=True)
class Node:
    """A value of a file with its place, ``file:line``; a value in a mapping stands where its key does."""

    value: Scalar | list[Node] | dict[str, Node]
    where: str
    of_command: bool = False
    """From the command line: its relative paths begin at the current folder."""

    def located(self, folder: str) -> Node:
        """Return a path, or a list of paths, relative to a folder."""
        if isinstance(self.value, list):
            return Node([child.located(folder) for child in self.value], self.where, self.of_command)
        if isinstance(self.value, str) and not self.of_command:
            return Node(located(self.value, folder), self.where)
        return self

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def kind(self) -> str:
        """Return the kind of the value in words."""
        match self.value:
            case None:
                return "nothing"
            case bool():
                return "true" if self.value else "false"
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case str():
                return f"the text {self.value!r}" if len(self.value) < 60 else "a text"
        return f"the number {self.value}"


# YAML 1.2's plain scalars, not 1.1's, in which `no` is false, 010 is 8, 1:30 is 90 and 1e-3 is a text.
SCALARS: list[tuple[str, str, list[str | None]]] = [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
]
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Composes nodes; it never constructs a value."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


for _name, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


def read(text: str, source: str, problems: Problems) -> Node | None:
    """Return the value of a YAML text; None if it is not YAML or has a value that is not allowed."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.add(_place(source, mark), _syntax_words(error, text, mark))
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(f"{source}:{line}", f"there is a character that YAML does not allow: {chr(error.character)!r}")
        return None
    except RecursionError:
        problems.add(source, "it is nested too deeply")
        return None
    if root is None:
        return Node(None, f"{source}:1")
    before = len(problems.lines)
    made = _Converter(source, problems).convert(root, _place(source, root.start_mark), 0)
    return made if len(problems.lines) == before else None


class _Converter:
    def __init__(self, source: str, problems: Problems) -> None:
        self.source = source
        self.problems = problems
        self.count = 0

    def convert(self, node: yaml.Node, where: str, depth: int) -> Node:
        self.count += 1
        if self.count > MOST_NODES or depth > MOST_DEPTH:
            if self.count <= MOST_NODES:
                self.problems.add(where, "it is nested too deeply, or an alias stands inside of what it names")
            elif self.count == MOST_NODES + 1:
                self.problems.add(where, f"the file has more than {MOST_NODES:,} values, with its aliases written out")
            return Node(None, where)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return Node(self._mapping(node, depth), where)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            children = []
            for child in node.value:
                if self.count > MOST_NODES:
                    break
                children.append(self.convert(child, _place(self.source, child.start_mark), depth + 1))
            return Node(children, where)
        if isinstance(node, yaml.ScalarNode):
            return Node(self._scalar(node, where), where)
        self.problems.add(where, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed: only plain values are")
        return Node(None, where)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, value in node.value:
            if self.count > MOST_NODES:
                break
            where = _place(self.source, key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.add(where, "a key must be a plain text")
            elif key.tag == _TAG + "merge":
                self.problems.add(where, "'<<' is not supported: write the values out")
            elif key.value in entries:
                self.problems.add(where, f"the key {key.value!r} is there already, at {entries[key.value].where}")
            else:
                entries[key.value] = self.convert(value, where, depth + 1)
        return entries

    def _scalar(self, node: yaml.ScalarNode, where: str) -> Scalar:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" if re.fullmatch(SCALARS[2][1], text) and len(text) < 1000:
                return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
            case "float" if re.fullmatch(SCALARS[3][1], text):
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "str" | "merge":
                return text
            case tag:
                tag = f"!!{tag}" if node.tag.startswith(_TAG) else node.tag
                self.problems.add(where, f"{text[:40]!r} with the tag {tag} is not allowed: only plain values are")
                return None


def _place(source: str, mark: yaml.Mark | None) -> str:
    return source if mark is None else f"{source}:{mark.line + 1}"


def _syntax_words(error: yaml.MarkedYAMLError, text: str, mark: yaml.Mark | None) -> str:
    lines = text.split("\n")
    if mark is not None and mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
        return "there is a tab: YAML is indented by spaces"
    words = " ".join(str(part) for part in (error.context, error.problem) if part)
    return f"this is not YAML: {words}"
