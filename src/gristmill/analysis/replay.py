"""Documents that come back, passed through the rules that they have not reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill.analysis.outcomes import PASSED, Outcome
from gristmill.errors import InputChanged, PipelineError
from gristmill.lazy import Array, np
from gristmill.ledger.entry import UNSPECIFIED
from gristmill.scores.documents import StoredDocuments, excluded_names, stored_rows
from gristmill.scores.tables import ScoreFile, ScoreTable
from gristmill.stages.asynchronous import results_of
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.protocols import Sink
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.stages.text.io.reader.parquet import ParquetReader
from gristmill.tasks import DocumentBatch
from gristmill.tasks.arrow import int_array, string_array
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    import pyarrow as pa

NOT_OURS = "a later stage is not gristmill's"
NO_TEXT = "their text is not in excluded/"
MADE = "a later stage makes or joins documents"
FAILED = "a later stage fails on them"


@dataclass
class Replayed:
    """The outcome of documents, by their place among those that were replayed."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    undecided: dict[int, str] = field(default_factory=dict)
    """Why the outcome of a document is not known."""
    texts: dict[int, str] = field(default_factory=dict)


class Replay:
    """Passes documents through the stages after a rule."""

    def __init__(
        self, documents: StoredDocuments, runs_all: bool, text_field: str, fields: Sequence[str] | None
    ) -> None:
        """``runs_all``: whether to run stages that are not gristmill's, too. ``fields``: the only ones written."""
        self.documents = documents
        self.runs_all = runs_all
        self.fields = fields
        self.text_field = text_field
        self._ready: set[int] = set()
        self._held: list[Any] = []
        self._held_of: tuple[ScoreFile, tuple[str, ...] | None] | None = None
        self._held_table: pa.Table | None = None

    def run(self, table: ScoreTable, rows: Array, stages: Sequence[tuple[str, Any]], texts: int) -> Replayed:
        """Pass the dropped documents in ``rows`` of a table through ``stages``, each with its name in the ledger.

        The text of the first ``texts`` documents is part of the result.
        """
        found = Replayed()
        stages = list(_up_to_end(stages))
        if not self.runs_all and any(not _is_ours(stage) for _, stage in stages):
            found.undecided = dict.fromkeys(range(len(rows)), NOT_OURS)
            return found
        batch = self._batch(table, rows, [stage for _, stage in stages])
        places = [] if batch is None else [int(one) for one in batch.data.column(ID).to_pylist()]
        found.undecided = dict.fromkeys(set(range(len(rows))) - set(places), NO_TEXT)
        if batch is None or not places:
            return found
        self._note_texts(batch, places, texts, found)
        try:
            self._through(batch, stages, found)
        except (ArithmeticError, ImportError, LookupError, TypeError, ValueError, PipelineError):
            found.undecided.update(dict.fromkeys(set(places) - set(found.outcomes), FAILED))
        return found

    def _note_texts(self, batch: DocumentBatch, places: Sequence[int], texts: int, found: Replayed) -> None:
        if not texts or self.text_field not in batch.data.column_names:
            return
        shown = batch.data.column(self.text_field).slice(0, texts).to_pylist()
        found.texts = {place: text for place, text in zip(places, shown, strict=False) if isinstance(text, str)}

    def _through(self, batch: DocumentBatch, stages: Sequence[tuple[str, Any]], found: Replayed) -> None:
        batches = [batch]
        for name, stage in stages:
            self._make_ready(stage)
            following: list[DocumentBatch] = []
            for one in batches:
                given = set(one.data.column(ID).to_pylist())
                results = list(self._one_stage(name, stage, one, found))
                after = [ident for task in results for ident in task.data.column(ID).to_pylist()]
                if len(after) != len(set(after)) or not given.issuperset(after):
                    found.undecided.update(dict.fromkeys(map(int, given), MADE))
                    return
                for place in set(map(int, given.difference(after))) - set(found.outcomes) - set(found.undecided):
                    found.outcomes[place] = (name, UNSPECIFIED)
                following += results
            batches = following
        for one in batches:
            for ident in one.data.column(ID).to_pylist():
                found.outcomes[int(ident)] = PASSED

    def _one_stage(self, name: str, stage: Any, batch: DocumentBatch, found: Replayed) -> Iterator[DocumentBatch]:
        for result in results_of(stage, batch):
            account = result.take_account()
            if account is not None:
                if account.made or account.merged or account.bad:
                    why = FAILED if account.bad else MADE
                    found.undecided.update({int(one): why for one in batch.data.column(ID).to_pylist()})
                    return
                for dropped in account.dropped:
                    idents = dropped.rows.column(ID).to_pylist()
                    found.outcomes.update(
                        {int(one): (name, reason) for one, reason in zip(idents, dropped.reasons, strict=True)}
                    )
            if isinstance(result, DocumentBatch) and result.num_items:
                yield result

    def _make_ready(self, stage: Any) -> None:
        if id(stage) not in self._ready:
            stage.preload()
            stage.setup()
            self._ready.add(id(stage))
            self._held.append(stage)

    def close(self) -> None:
        for stage in self._held:
            stage.teardown()

    def _batch(self, table: ScoreTable, rows: Array, stages: Sequence[Any]) -> DocumentBatch | None:
        """Return documents with their place in ``rows`` as the id: from ``excluded/``."""
        needed = {name.partition(".")[0] for stage in stages for name in stage.inputs()[1]}
        if self.fields is not None and not needed.issubset(self.fields):
            return None
        numbers = {int(number): place for place, number in enumerate(table.excluded_rows[rows].tolist())}
        stored = stored_rows(self.documents, table, list(numbers))
        if not stored:
            return None
        wanted = {place_in_file: numbers[number] for number, place_in_file in stored.items()}
        fields: tuple[str, ...] | None = None
        if all(stage.columns_needed() is not None for stage in stages):
            looked_at = {name.partition(".")[0] for stage in stages for name in stage.looks_at()}
            fields = tuple(sorted({*needed, *looked_at, self.text_field}))
        try:
            excluded = self._excluded(table.file, fields)
        except (InputChanged, PipelineError, OSError):
            return None
        if excluded is None:
            return None
        places = sorted(wanted)
        ids = string_array([str(wanted[place]) for place in places])
        part = excluded.take(int_array(np.array(places)))
        part = part.set_column(part.column_names.index(ID), ID, ids)
        return DocumentBatch(part, task_id=str(table.file.block))

    def _excluded(self, file: ScoreFile, fields: tuple[str, ...] | None) -> pa.Table | None:
        """Return all excluded documents of a task. The last ones are held: documents of several rules are needed."""
        import pyarrow as pa

        if self._held_of != (file, fields):
            folder, names, _ = excluded_names(self.documents, file)
            paths = [folder.full_path(name) for name in names]
            kind = ParquetReader if names[0].endswith(".parquet") else JsonlReader
            options = {"storage_options": folder.options}
            reader = kind(paths, fields=fields, text_field=None, read_kwargs=options)
            parts = [batch.data for block in reader.source() or () for batch in results_of(reader, block)]
            self._held_table = pa.concat_tables(parts, promote_options="permissive") if parts else None
            self._held_of = (file, fields)
        return self._held_table


def _up_to_end(stages: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, stage in stages:
        if isinstance(stage, BarrierStage | Sink):
            return
        yield name, stage


def _is_ours(stage: Any) -> bool:
    """Whether a stage and all that it was given are gristmill's own."""
    return bool(stage.builtin) and all(
        str(type(one).__module__).split(".")[0] == "gristmill" for one in stage.made_of()
    )
