"""One document replayed through a pipeline: its values, decisions and changes at each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from gristmill.errors import PipelineError
from gristmill.kernels.features import Features
from gristmill.kernels.texts import Texts
from gristmill.lazy import np
from gristmill.ledger.commits import DECIDED
from gristmill.pipeline.explain_duplicates import DuplicateRecord, clips_in_common, images_in_common, in_common, look_up
from gristmill.pipeline.find_document import DocumentNotFound, bad_record, find
from gristmill.pipeline.phases.split import phase_folder, records_folder
from gristmill.stages.asynchronous import results_of
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact.pieces import NOTHING_LEFT, PieceDeduplication, without
from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication
from gristmill.stages.deduplication.semantic.embeddings import SOURCE
from gristmill.stages.deduplication.semantic.removal import REASON, RemoveSemanticDuplicates
from gristmill.stages.deduplication.semantic.stage import SemanticDeduplication
from gristmill.stages.image.deduplication.barrier import BAD, ImageBarrier
from gristmill.stages.protocols import Scoring, Sink
from gristmill.stages.spool import OF_DOCUMENTS
from gristmill.stages.text.filters.columns import set_column
from gristmill.stages.text.filters.document_filter import Contents, DocumentFilter
from gristmill.stages.text.filters.score_filter import ScoreFilter, reasons_of
from gristmill.stages.text.modifiers import DocumentModifier, Modify
from gristmill.stages.text.recipes.stage import RecipeStage
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.account import Account
from gristmill.tasks.arrow import string_array, to_rows
from gristmill.tasks.document import HIDDEN, ID
from gristmill.tasks.image import IMAGE
from gristmill.tasks.video import CLIP_ID

Stage = ProcessingStage[Any, Any]
IN_QUARANTINE = "in quarantine, "
QUARANTINED = f"dropped: {IN_QUARANTINE}"
INTERNAL = "_gristmill_"
"""Begins the names of columns between stages, such as the input of a model."""


@dataclass
class Finding:
    """The decision of a filter on the document."""

    name: str
    score: Any
    rule: str
    keep: bool
    reason: str = ""


@dataclass
class StageReport:
    """The effect of a stage on the document."""

    name: str
    verdict: str
    """"kept", "dropped: <reason>", "not compared: <reason>", "changed: <columns>; removed: <columns>" or one of both,
    "became <n> documents"."""
    findings: list[Finding] = field(default_factory=list)
    features: dict[str, float] = field(default_factory=dict)
    """Features of the text that no earlier stage showed."""
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Columns that differ: before and after."""
    removed: list[str] = field(default_factory=list)
    """Columns that the document had and that the stage did not return."""
    counted: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def drops(self) -> bool:
        return self.verdict.startswith("dropped")


@dataclass
class Explanation:
    """The path of one document through a pipeline."""

    document: str
    fields: dict[str, Any]
    stages: list[StageReport]

    @property
    def kept(self) -> bool:
        return not any(stage.drops for stage in self.stages)


def explain(stages: Sequence[Stage], ident: str, id_field: str = "id") -> Explanation:
    """Replay the document with this id through the stages of a planned pipeline, reader first.

    ``ident`` is ``<source file>#<position>``, or the value of ``id_field``; of images and videos without that field
    the image id or the video id. The id of a clip follows that clip where its video is split. Stages after one that
    drops the document process it nevertheless, so that all reasons are shown; none does after a quarantine.
    """
    batch = _document(stages, ident, id_field)
    shown = {name: value for name, value in batch.to_pylist()[0].items() if name not in HIDDEN}
    explanation = Explanation(str(batch.data.column(ID)[0]), shown, [])
    known: dict[str, float] = {}
    barriers = 0
    for stage in stages[1:]:
        if isinstance(stage, Sink):
            break
        if isinstance(stage, BarrierStage):
            barriers += 1
            report, batch = _of_barrier(stage, barriers, stages, explanation, batch)
            explanation.stages.append(report)
            continue
        if isinstance(stage, RemoveSemanticDuplicates):
            explanation.stages.append(_of_records(stage, explanation.document))
            continue
        report, batch = _replay(stage, batch, _part(explanation.document, ident))
        new = {name: value for name, value in report.features.items() if known.get(name) != value}
        known.update(new)
        report.features = new
        explanation.stages.append(report)
        if batch.num_items == 0 or report.verdict.startswith(QUARANTINED):
            break
    return explanation


def _part(document: str, ident: str) -> str:
    """The id of the part that is followed where the document is split: ``<id>/<number>``, or what was given."""
    part = ident.rpartition("#")[2].partition("/")[2]
    return f"{document}/{part}" if part else ident


def _document(stages: Sequence[Stage], ident: str, id_field: str) -> DocumentBatch:
    """Return the document. Raise `PipelineError` with the reason if it is a bad record."""
    try:
        return find(stages[0], ident, id_field)
    except DocumentNotFound:
        writer = next((stage for stage in stages if isinstance(stage, Sink)), None)
        reason = None if writer is None else bad_record(writer.folder, ident)
        if reason is None:
            raise
        raise PipelineError(f"the record {ident} is in quarantine, and no stage processed it: {reason}") from None


def _of_barrier(
    stage: BarrierStage, number: int, stages: Sequence[Stage], before: Explanation, batch: DocumentBatch
) -> tuple[StageReport, DocumentBatch]:
    """Report the decision of a barrier on the document, and return the rest of it."""
    writer = next((stage for stage in stages if isinstance(stage, Sink)), None)
    if writer is None or not phase_folder(writer.folder, number).exists(DECIDED):
        raise PipelineError(f"{stage.name!r} has not decided yet: run the pipeline first.")
    found = look_up(records_folder(writer.folder, number), str(batch.data.column(ID)[0]))  # of a clip, if it was split
    if found.record is None and not before.kept:
        return StageReport(stage.name, "not compared: it was dropped before"), batch
    if found.record is None:
        report = StageReport(stage.name, _without_keys(stage, batch) or "kept")
        if found.stood_for:
            what = f"{stage.unit}s" if isinstance(stage, PieceDeduplication) else "documents"
            report.counted[f"{what} removed for which this one stays"] = found.stood_for
        return report, batch
    if isinstance(stage, PieceDeduplication):
        return _less_pieces(stage, found, batch)
    survivor = found.record["survivor"]
    report = StageReport(stage.name, f"dropped: duplicate of {survivor}")
    if isinstance(stage, SemanticDeduplication):
        report.notes.append(f"most similar to {found.record['similar']}, in cluster {found.record['cluster']}")
    else:
        report.notes.append(f"cluster of {found.record['cluster']}")
    report.notes += _later(stages, number, writer.folder, survivor)
    for name in ("distance", "jaccard_estimated", "jaccard_verified", "similarity"):
        if (value := found.record.get(name)) is not None:
            report.findings.append(Finding(name, value, "", False))
    report.notes += _in_common(stage, batch.data, find(stages[0], survivor, ID).data)
    return report, batch


def _in_common(stage: BarrierStage, data: Any, other: Any) -> Iterator[str]:
    """Yield lines on what a removed document and its survivor have in common, if the reader gives what was compared."""
    shared = set(data.column_names).intersection(other.column_names)
    field = stage.text_field if isinstance(stage, SemanticDeduplication) else stage.key_columns[0]
    if isinstance(stage, SemanticDeduplication) and field not in shared:
        field = IMAGE
    if field not in shared:
        return
    mine, theirs = (table.column(field)[0].as_py() for table in (data, other))
    if isinstance(stage, ImageBarrier) and stage.what == "clips":
        yield from clips_in_common(mine or b"", theirs or b"")
    elif isinstance(stage, ImageBarrier) or field == IMAGE:
        yield from images_in_common(mine or b"", theirs or b"")
    else:
        yield from in_common(mine or "", theirs or "", isinstance(stage, FuzzyDeduplication) and stage.normalize)


def _without_keys(stage: BarrierStage, batch: DocumentBatch) -> str | None:
    """Return the verdict for a document whose keys cannot be made."""
    try:
        stage.preload()
        keys = stage.keys(batch)
    except OF_DOCUMENTS as error:
        return f"dropped: in quarantine, {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    reason = keys.column(BAD)[0].as_py() if isinstance(stage, ImageBarrier) else None
    return f"dropped: in quarantine, {reason}" if reason else None


def _later(stages: Sequence[Stage], number: int, output: Folder, survivor: str) -> Iterator[str]:
    """Yield the decisions of later barriers on a survivor."""
    barriers = [stage for stage in stages if isinstance(stage, BarrierStage)]
    for n, barrier in enumerate(barriers[number:], number + 1):
        if isinstance(barrier, PieceDeduplication):
            continue
        found = look_up(records_folder(output, n), survivor)
        if found.record is not None:
            yield f"{survivor} was removed by {barrier.name!r} in turn, for {found.record['survivor']}"
            survivor = found.record["survivor"]


def _less_pieces(
    stage: PieceDeduplication, found: DuplicateRecord, batch: DocumentBatch
) -> tuple[StageReport, DocumentBatch]:
    assert found.record is not None
    stage.preload()
    field = stage.text_field
    text = without(batch, field, stage.unit, np.zeros(len(found.pieces), int), np.array(found.pieces))[0]
    report = StageReport(stage.name, f"changed: {field}")
    report.counted[f"{stage.unit}s removed that were there before"] = len(found.pieces)
    report.notes.append(f"the first of them was in {found.record['survivor']}")
    if not text.strip():
        report.verdict = f"dropped: {NOTHING_LEFT}"
        return report, batch
    report.changes = {field: (batch.data.column(field)[0].as_py(), text)}
    left = DocumentBatch(batch.data, task_id=batch.task_id)
    set_column(left, field, string_array([text]))
    return report, left


def _of_records(stage: RemoveSemanticDuplicates, ident: str) -> StageReport:
    """Report the record of a semantic deduplication for the document."""
    records = stage.records
    if records.is_local and not records.exists():
        raise PipelineError(f"{records.url} is not there, which has the records of {stage.name!r}: was it moved?")
    found = look_up(records, ident, SOURCE, f"kept_{SOURCE}")
    report = StageReport(stage.name, "kept")
    if found.stood_for:
        report.counted["documents removed for which this one stays"] = found.stood_for
    if found.record is not None:
        report.verdict = f"dropped: {REASON} of {found.record['kept_id']!r}, {found.record[f'kept_{SOURCE}']}"
        report.findings.append(Finding("similarity", found.record["similarity"], "", False))
        report.notes.append(f"most similar to {found.record['similar_id']!r}, in cluster {found.record['cluster']}")
    return report


def _replay(stage: Stage, batch: DocumentBatch, part: str) -> tuple[StageReport, DocumentBatch]:
    """Report what a stage does to the document, and return the result: if it is split, one part of it."""
    stage.preload()
    stage.setup()
    before = batch.data
    report = StageReport(stage.name, "kept")
    seen = DocumentBatch(before, task_id=batch.task_id)
    for one, text_field in _rules(stage):
        if isinstance(one, DocumentModifier):
            seen = Modify(one, text_field).process(seen)
            continue
        seen = one.without_unreadable(seen, text_field)
        contents = one.contents_of(seen, text_field)
        if not seen.num_items or one.unreadable_in(contents):
            break
        report.findings.append(_finding(one, contents))
        if isinstance(contents, Texts):
            report.features.update(_features(contents))
    try:
        results = results_of(stage, DocumentBatch(before, task_id=batch.task_id))
    finally:
        stage.teardown()
    accounts = [account for task in results if (account := task.take_account()) is not None]
    for account in accounts:
        report.counted.update(account.counters)
        if not report.findings and isinstance(stage, Scoring):
            report.findings += _findings(stage, account)
    dropped = [reason for account in accounts for part in account.dropped for reason in part.reasons]
    dropped += [f"{IN_QUARANTINE}{record.reason}" for account in accounts for record in account.bad]
    after = [task for task in results if isinstance(task, DocumentBatch)]
    rows = sum(task.num_items for task in after)
    if not rows:
        report.verdict = f"dropped: {dropped[0] if dropped else 'unspecified'}"
        return report, batch
    if rows > 1:
        report.verdict = f"became {rows} documents"
    parts = [task.data.slice(row, 1) for task in after for row in range(task.num_items)]
    now = next((one for one in parts if _is(one, part)), parts[0])
    if rows > 1:
        report.notes.append(f"what follows is of {now.column(ID)[0]}; give the id of another to see that")
    was, is_now = to_rows(before)[0], to_rows(now)[0]
    report.changes = _changes(was, is_now)
    report.removed = [
        name for name in was if was[name] is not None and name not in is_now and not name.startswith(INTERNAL)
    ]
    if rows == 1:
        columns = (("changed", report.changes), ("removed", report.removed))
        report.verdict = "; ".join(f"{what}: {', '.join(names)}" for what, names in columns if names) or report.verdict
    return report, DocumentBatch(now, task_id=batch.task_id)


def _is(row: Any, part: str) -> bool:
    """Whether a row is this part of a document, by its id or that of its clip, or the part was made of it."""
    names = [str(row.column(name)[0]) for name in (ID, CLIP_ID) if name in row.column_names]
    return any(part == name or part.startswith(f"{name}/") for name in names)


def _rules(stage: Stage) -> Iterator[tuple[Any, str]]:
    """Yield the filters of a stage, and the modifiers between them, with their fields."""
    if isinstance(stage, ScoreFilter):
        yield from zip(stage.filters, stage.text_fields, strict=True)
    elif isinstance(stage, RecipeStage):
        yield from zip(stage.rules, stage.fields, strict=True)


def _finding(one: DocumentFilter, contents: Contents) -> Finding:
    scores = one.score_contents(contents)
    keep = bool(one.keep_batch(scores)[0])
    reasons = "" if keep else one.reasons(scores)
    return Finding(one.name, scores[0], one.rule(), keep, reasons if isinstance(reasons, str) else reasons[0])


def _findings(stage: Scoring, account: Account) -> Iterator[Finding]:
    """Yield the decisions of a stage that computes scores by itself, as it has reported them."""
    for scored in account.scored:
        for (one, inverted), (_, scores) in zip(stage.scored_rules(), scored.rules, strict=False):
            if len(scores):
                keep = bool(one.keep_batch(scores)[0]) ^ inverted
                yield Finding(
                    one.name, scores[0], one.rule(), keep, "" if keep else reasons_of(one, scores, inverted)[0]
                )


def _features(texts: Texts) -> Iterator[tuple[str, float]]:
    """Yield the computed features of the one text."""
    for key, value in texts._computed.items():
        if not isinstance(value, Features):
            continue
        group = key if isinstance(key, str) else str(key[0]) if isinstance(key, tuple) else str(key)
        for one in fields(value):
            array = getattr(value, one.name)
            if one.name in ("first", "last") or one.metadata.get("shared"):
                continue  # positions of words, not features
            if isinstance(array, np.ndarray) and array.ndim == 1 and len(array):
                yield f"{group}.{one.name}", array[0].item()


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [name for name in after if not name.startswith(INTERNAL)]
    return {name: (before.get(name), after[name]) for name in names if before.get(name) != after[name]}
