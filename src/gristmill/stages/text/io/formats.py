"""The formats of files of documents.

For another one: write its reader and writer, add it to `FORMATS`, and add the modules of both to
`gristmill.stages.registry.MODULES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gristmill.secrets import without_query
from gristmill.stages.text.io.compression import BY_NAME

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.base import FileReader
    from gristmill.stages.text.io.writer.base import FileWriter


@dataclass(frozen=True)
class FileFormat:
    """A format of files, with the classes that read and write it, which are imported when they are needed."""

    name: str
    """In messages. Arguments of workflows have it in lower case."""
    extensions: Sequence[str]
    """The ends of the names of its files, in lower case."""
    reader_name: str
    """``module:class`` below `gristmill.stages.text.io`, as the next one."""
    writer_name: str
    ambiguous: Sequence[str] = ()
    """More ends of names that are read, but that files of other formats may have too."""

    @property
    def all_extensions(self) -> tuple[str, ...]:
        return (*self.extensions, *self.ambiguous)

    @property
    def reader(self) -> type[FileReader]:
        found: type[FileReader] = _load(self.reader_name)
        return found

    @property
    def writer(self) -> type[FileWriter]:
        found: type[FileWriter] = _load(self.writer_name)
        return found

    def matches(self, path: str) -> bool:
        """Whether the name of a file ends as those of this format do."""
        return without_query(path).lower().endswith(self.all_extensions)


def _load(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(import_module(f"gristmill.stages.text.io.{module}"), kind)


def _compressed(*plain: str) -> list[str]:
    return [name + end for name in plain for end in ("", *BY_NAME)]


JSONL = FileFormat(
    "JSONL",
    _compressed(".jsonl", ".ndjson"),
    "reader.jsonl:JsonlReader",
    "writer.jsonl:JsonlWriter",
    ambiguous=_compressed(".json"),
)
PARQUET = FileFormat("Parquet", (".parquet", ".pq"), "reader.parquet:ParquetReader", "writer.parquet:ParquetWriter")

FORMATS = {one.name.lower(): one for one in (JSONL, PARQUET)}
"""By their names in arguments. A file with an unknown name is of the first."""


def format_of(path: str) -> FileFormat:
    """Return the format of a file by its name."""
    return next((one for one in FORMATS.values() if one.matches(path)), JSONL)


def all_extensions() -> tuple[str, ...]:
    """Return the ends of the names of all files that can be read."""
    return tuple(end for one in FORMATS.values() for end in one.all_extensions)
