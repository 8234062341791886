"""The reference set: entries of one or several texts, from files or arguments."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.stages.text.io.formats import all_extensions, format_of
from gristmill.stages.text.io.listing import File, list_files
from gristmill.tasks import DocumentBatch, FileBlock
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

GIVEN = "text"
"""The file name of entries that come from no file."""
SHOWN = 60
"""Characters of a value in an error."""


@dataclass(frozen=True)
class Reference:
    """Texts and their entries, numbered in the order of the sorted paths."""

    names: Sequence[str]
    """Of each entry: ``<file name>#<byte offset or row>``."""
    texts: Texts
    entries: np.ndarray[Any, Any]
    """The entry of each text."""


@dataclass(frozen=True)
class ReferenceSource:
    """Where a reference comes from. Equal sources with equal files have the same entries."""

    paths: tuple[str, ...]
    texts: tuple[str, ...]
    fields: tuple[str, ...]
    read_kwargs: Mapping[str, Any] = field(compare=False)

    @classmethod
    def of(
        cls,
        stage: str,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
        texts: Sequence[str] | None,
        fields: str | Sequence[str],
        read_kwargs: Mapping[str, Any] | None,
    ) -> ReferenceSource:
        if (paths is None) == (texts is None):
            raise ValueError(f"{stage}: give reference_path or reference_texts, one of the two.")
        if isinstance(texts, str):
            raise ValueError(f"{stage}: reference_texts is a list of texts; files are named by reference_path.")
        unknown = set(read_kwargs or {}) - {"storage_options"}
        if unknown:
            raise ValueError(f"{stage}: read_kwargs knows 'storage_options' only, not {min(unknown)!r}.")
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        if not names:
            raise ValueError(f"{stage}: reference_field names no field.")
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths or ())
        if paths is not None and not given:
            raise ValueError(f"{stage}: reference_path is an empty list.")
        return cls(tuple(os.fspath(path) for path in given), tuple(texts or ()), names, dict(read_kwargs or {}))

    def files(self) -> list[File]:
        """Return the files; raise `PlanError` if one is missing."""
        if not self.paths:
            return []
        return list_files(self.paths, all_extensions(), self.read_kwargs.get("storage_options"))

    def read(self, files: Sequence[File]) -> Reference:
        """Return all entries. Raise `PlanError` for a damaged file: no entry may be missed."""
        from gristmill.kernels.texts import Texts

        names: list[str] = [f"{GIVEN}#{i}" for i in range(len(self.texts))]
        texts: list[str] = list(self.texts)
        entries: list[int] = list(range(len(self.texts)))
        found: set[str] = set()
        for file in files:
            for name, pieces in self._entries(file, found):
                texts += pieces
                entries += [len(names)] * len(pieces)
                names.append(name)
        if not any(text.strip() for text in texts):
            where = ", ".join(self.paths) or "reference_texts"
            raise PlanError(f"the reference {where} has no text: there is nothing to look for.")
        for name in self.fields if files else ():
            if name not in found:
                raise PlanError(f"no record of the reference {', '.join(self.paths)} has a text in the field {name!r}.")
        return Reference(names, Texts.of(texts), np.array(entries, np.int64))

    def _entries(self, file: File, found: set[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the entries of a file with their texts, in order; add the fields with texts to ``found``."""
        count = with_text = 0
        path = file.path
        for batch in self._batches(file):
            bad = batch.account.bad
            if bad:
                more = f" There are {len(bad)} such records in it." if len(bad) > 1 else ""
                raise PlanError(f"reference {path}: the record at {bad[0].position} is bad: {bad[0].reason}.{more}")
            by_field = {name: self._column(batch, name, path) for name in self.fields if name in batch.columns}
            found.update(name for name, column in by_field.items() if any(column))
            for row, ident in enumerate(batch.data.column(ID).to_pylist()):
                pieces = [text for column in by_field.values() for text in column[row]]
                count += 1
                with_text += bool(pieces)
                yield posixpath.basename(path) + "#" + ident.rpartition("#")[2], pieces
        if count and not with_text:
            names = " nor ".join(map(repr, self.fields))
            raise PlanError(
                f"reference {path}: no record has a text in the field {names}: "
                "say reference_field=... for the fields of the text."
            )

    def _batches(self, file: File) -> Iterator[DocumentBatch]:
        kind = format_of(file.path).reader
        reader = kind(None, 1, fields=list(self.fields), read_kwargs=dict(self.read_kwargs), text_field=None)
        read: Any = reader.process(FileBlock([reader.range_of(file)], task_id="0"))
        yield from [read] if isinstance(read, DocumentBatch) else read

    def _column(self, batch: DocumentBatch, name: str, path: str) -> list[list[str]]:
        """Return the texts of a field, a list for each record."""
        import pyarrow as pa

        from gristmill.tasks.arrow import is_json

        column = batch.data.column(name)
        as_json: list[str | None] | None = None
        if is_json(batch.data.schema.field(name)):
            as_json = column.to_pylist()
        elif pa.types.is_struct(column.type) or any(pa.types.is_nested(one.type) for one in _members(column.type)):
            as_json = [None if value is None else json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
        if as_json is not None:
            idents = batch.data.column(ID).to_pylist()
            return [
                [] if text is None else _texts(text, name, path, ident.rpartition("#")[2])
                for text, ident in zip(as_json, idents, strict=True)
            ]
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
            values = [[text for text in row or () if text] for row in column.to_pylist()]
        else:
            values = [[text] if text else [] for text in column.to_pylist()]
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise PlanError(f"reference {path}: the field {name!r} holds {kind}, not text or lists of texts.")
        return values


def _members(kind: Any) -> list[Any]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _texts(value: str, name: str, path: str, position: str) -> list[str]:
    """Return the texts of a JSON value: one text or a list of texts."""
    found = fast_json.loads(value)
    texts = found if isinstance(found, list) else [found]
    if not all(text is None or isinstance(text, str) for text in texts):
        shown = value if len(value) <= SHOWN else value[:SHOWN] + "..."
        raise PlanError(
            f"reference {path}: the field {name!r} of the record at {position} is {shown}, not a text or a list of "
            "texts: make it one, or take the record out, or name other fields by reference_field=..."
        )
    return [text for text in texts if text]
