"""Similarities verified on the texts themselves: of a sample, or of all documents, to split chained clusters.

Documents of clusters are read again and their texts put into files, by groups of whole clusters. Each group is compared
alone: every document with the survivor, and with a few other survivors of its cluster (`staying`), so that a cluster of
a million documents takes a million comparisons, times a small number.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gristmill.kernels.folding import folded
from gristmill.kernels.signatures import jaccards, shingle_sets
from gristmill.kernels.texts import Texts
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.fuzzy.staying import INDEX_BYTES, MOST_COMPARED, SetsOnDisk, Staying, least_for
from gristmill.stages.deduplication.link import STAYS
from gristmill.stages.deduplication.match import read_array, write_array
from gristmill.stages.deduplication.parts import IDENT, SIZE, Parts
from gristmill.stages.deduplication.records import VERIFIED
from gristmill.stages.spool import in_arrow, part_of, read_arrow
from gristmill.stages.text.filters.columns import column_of, only_texts_of
from gristmill.tasks import DocumentBatch, FileGroupTask, Task, Written
from gristmill.tasks.arrow import int_array, number_array, numbers_of

if TYPE_CHECKING:
    from gristmill.stages.barrier import BarrierContext
    from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication

Array = np.ndarray[Any, Any]

WANTED = "wanted.npy"
"""Documents whose texts are needed, in order; their clusters; the groups of these."""
TEXTS = ".texts"
_BYTES_PER_TEXT_BYTE = 24
"""Of memory, to compare texts: a shingle of eight bytes for each character, in three copies."""
_MILLION = 1_000_000


def verified_sample(context: BarrierContext, parts: Parts, stage: FuzzyDeduplication, stays: Array) -> list[str]:
    """Verify some removed documents, the same ones each time; return lines for the report."""
    gone = np.flatnonzero(stays != np.arange(len(stays)))
    if not len(gone):
        return []
    chosen = gone[np.argsort(_scrambled(gone), kind="stable")[: stage.verify_sample]]
    chosen.sort()
    wanted = np.unique(np.concatenate([chosen, stays[chosen]]))
    values = _compared_here(context, parts, stage, wanted, chosen, stays)
    if values is None:
        # a split cluster has several survivors, each with its own cluster here
        found = _verified(context, parts, stage, stays, wanted, is_split=False)
        values = found[2, np.isin(found[0], chosen)]
    write_array(context.folder, VERIFIED, np.stack([chosen, values]))
    values = values / _MILLION
    below = float((values < stage.threshold).mean()) if len(values) else 0.0
    return [
        f"{stage.name}: similarity verified for {len(values):,} of {len(gone):,}: median {np.median(values):.2f}, "
        f"{below:.1%} below {stage.threshold:.2f}"
    ]


def _compared_here(
    context: BarrierContext, parts: Parts, stage: FuzzyDeduplication, wanted: Array, chosen: Array, stays: Array
) -> Array | None:
    """Return similarities of a few documents with survivors, in millionths; None if texts must be read again."""
    rows = parts.take(wanted, [IDENT, SIZE])
    if int(numbers_of(rows.column(SIZE)).sum()) * _BYTES_PER_TEXT_BYTE > context.memory // 4:
        return None
    part, row = parts.place(wanted)
    idents = rows.column(IDENT).to_pylist()
    places = [(parts.names[p], r, ident) for p, r, ident in zip(part.tolist(), row.tolist(), idents, strict=True)]
    texts = context.few(places, stage.text_field)
    if texts is None:
        return None
    compared = folded(Texts.of(texts)) if stage.normalize else Texts.of(texts)
    values, edges = shingle_sets(compared, stage.word_ngrams or stage.char_ngrams, unit_of(stage))
    pairs = (np.searchsorted(wanted, side) for side in (chosen, stays[chosen]))
    return np.rint(jaccards(values, edges, *pairs) * _MILLION).astype(np.int64)


def unit_of(stage: FuzzyDeduplication) -> str:
    return "word" if stage.word_ngrams else "char"


def split(context: BarrierContext, parts: Parts, stage: FuzzyDeduplication, labels: Array, stays: Array) -> list[str]:
    """Verify all similarities, and keep documents that are not like a survivor."""
    own = np.arange(len(labels))
    others = np.flatnonzero(labels != own)
    wanted = np.union1d(others, labels[others])
    found = _verified(context, parts, stage, labels, wanted, is_split=True)
    before = int((stays != own).sum())
    stays = np.array(stays)
    stays[found[0]] = found[1]
    write_array(context.folder, STAYS, stays)
    gone = found[:, found[0] != found[1]]
    write_array(context.folder, VERIFIED, gone[[0, 2]])
    kept = before - int((stays != own).sum())
    threshold = f"{stage.threshold:.2f}"
    notes = [
        f"{stage.name}: all similarities verified; {kept:,} documents stay that are linked to others of their cluster, "
        f"but are less than {threshold} like each document that stays"
    ]
    if unsure := int(found[3].sum()):
        notes.append(
            f"{stage.name}: {unsure:,} of these {kept:,} were compared only with the {MOST_COMPARED} most alike of "
            f"those that stay in their cluster: another may be {threshold} or more like them"
        )
    return notes


def _verified(
    context: BarrierContext, parts: Parts, stage: FuzzyDeduplication, labels: Array, wanted: Array, is_split: bool
) -> Array:
    """Return rows: documents, in order; their survivors; similarities in millionths; 1 for an uncertain survivor.

    A survivor is uncertain if not all others that may be like it were compared.
    """
    folder = context.folder
    sizes = numbers_of(parts.take(wanted, [SIZE]).column(0)) if len(wanted) else np.zeros(0, np.int64)
    memory = max(1, context.memory // (4 * context.workers))
    held = int(sizes.sum()) * _BYTES_PER_TEXT_BYTE
    if is_split:
        held += len(wanted) * INDEX_BYTES * least_for(stage.threshold)
    groups = int(max(1, min(len(wanted), -(-held // memory))))
    group = _scrambled(labels[wanted]) % np.uint64(groups)
    write_array(folder, WANTED, np.stack([wanted, labels[wanted], group.astype(np.int64)]))
    touched = np.unique(parts.place(wanted)[0])
    context.again("texts of clusters", Gather(parts, stage.text_field), [parts.names[part] for part in touched])
    tasks = [VerifyTask(n, task_id=str(n)) for n in range(groups)]
    compare = Verify(parts, [parts.names[part] for part in touched], stage, is_split)
    done = context.run("verify", compare, tasks, int(sizes.sum()))
    arrays = [read_array(folder, f"verified-{task.data:05d}.npy") for task in done]
    found = np.concatenate(arrays, axis=1) if arrays else np.zeros((4, 0), np.int64)
    return found[:, np.argsort(found[0], kind="stable")]


def _scrambled(numbers: Array) -> Array:
    """Return a hash of each number."""
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


class Gather(ProcessingStage[DocumentBatch, FileGroupTask], builtin=True):
    """Writes the texts of the wanted documents by group."""

    accounts_for_documents = True
    split_on_failure = False

    def __init__(self, parts: Parts, text_field: str) -> None:
        self.name = "texts of clusters"
        self.parts = parts
        self.text_field = text_field

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> FileGroupTask:
        name = part_of(task)
        part = self.parts.names.index(name)
        begin, end = self.parts.starts[part], self.parts.starts[part + 1]
        wanted = read_array(self.parts.folder, WANTED)
        low, high = np.searchsorted(wanted[0], [begin, end])
        documents, labels, group = (np.asarray(row[low:high]) for row in wanted)
        order = np.argsort(group, kind="stable")
        only_texts_of(task, self.text_field)
        texts = column_of(task, self.text_field).take(int_array(documents[order] - begin))
        numbers = {"document": documents[order], "label": labels[order], "group": group[order]}
        columns = {**{name: number_array(values) for name, values in numbers.items()}, "text": texts}
        data = in_arrow(pa.table(columns))
        self.parts.folder.write(name + TEXTS, data)
        written = FileGroupTask(data=[name + TEXTS])
        written.account.written.append(Written(name + TEXTS, task.num_items, data.size))
        return written


@dataclass
class VerifyTask(Task[int]):
    """The number of a group."""

    data: int = 0


class Verify(ProcessingStage[VerifyTask, VerifyTask]):
    """Compares the documents of a group of clusters with survivors."""

    def __init__(self, parts: Parts, names: list[str], stage: FuzzyDeduplication, is_split: bool) -> None:
        self.name = "verify"
        self.parts = parts
        self.names = names
        self.ngrams = stage.word_ngrams or stage.char_ngrams
        self.unit = unit_of(stage)
        self.normalize = stage.normalize
        self.threshold = stage.threshold
        self.is_split = is_split

    def process(self, task: VerifyTask) -> VerifyTask:
        folder = self.parts.folder
        stays = read_array(folder, STAYS)
        staying: dict[int, Staying] = {}
        with closing(SetsOnDisk(folder)) as sets:
            for table in self._tables(task.data):
                documents, labels = (numbers_of(table.column(name)) for name in ("document", "label"))
                chosen = np.flatnonzero(np.asarray(stays[documents]) == documents)
                values, edges = self._sets(table.take(int_array(chosen)))
                for n, row in enumerate(chosen.tolist()):
                    shingles = values[edges[n] : edges[n + 1]].copy()  # a view would keep the whole array
                    staying[int(labels[row])] = Staying(int(documents[row]), shingles, sets, self.threshold)
            found = [self._compared(table, stays, staying) for table in self._tables(task.data)]
        whole = np.concatenate(found, axis=1) if found else np.zeros((4, 0), np.int64)
        write_array(folder, f"verified-{task.data:05d}.npy", whole)
        return VerifyTask(task.data, task_id=task.task_id)

    def _tables(self, group: int) -> Any:
        """Yield the documents of the group, part by part, in the order of the source."""
        for name in self.names:
            table = read_arrow(self.parts.folder, name + TEXTS)
            begin, end = np.searchsorted(numbers_of(table.column("group")), [group, group + 1])
            if end > begin:
                yield table.slice(begin, end - begin)

    def _sets(self, table: pa.Table) -> tuple[Array, Array]:
        texts = Texts.of_column(table.column("text"))
        return shingle_sets(folded(texts) if self.normalize else texts, self.ngrams, self.unit)

    def _compared(self, table: pa.Table, stays: Array, staying: dict[int, Staying]) -> Array:
        documents, labels = (numbers_of(table.column(name)) for name in ("document", "label"))
        rows = np.flatnonzero(np.asarray(stays[documents]) != documents)
        values, edges = self._sets(table.take(int_array(rows)))
        clusters, which = np.unique(labels[rows], return_inverse=True)
        theirs = [staying[label].first for label in clusters.tolist()]
        found = np.zeros((4, len(rows)), np.int64)
        found[0] = documents[rows]
        found[1] = np.array([number for number, _ in theirs], np.int64)[which]
        similar = _against(values, edges, [shingles for _, shingles in theirs], which)
        if self.is_split:
            for n in np.flatnonzero(similar < self.threshold).tolist():
                mine, known = values[edges[n] : edges[n + 1]], staying[int(clusters[which[n]])]
                other = known.like(mine)
                if other.document < 0:
                    known.add(int(found[0, n]), mine)
                    found[1, n], similar[n], found[3, n] = found[0, n], 1.0, not other.is_complete
                else:
                    found[1, n], similar[n] = other.document, other.similarity
        found[2] = np.rint(similar * _MILLION)
        return found


def _against(values: Array, edges: Array, others: list[Array], which: Array) -> Array:
    """Return the similarity of each set with one of the others."""
    if not len(which):
        return np.zeros(0)
    ends = np.cumsum([len(other) for other in others]) + len(values)
    whole = np.concatenate([values, *others])
    return jaccards(whole, np.concatenate([edges, ends]), np.arange(len(which)), len(which) + which)
