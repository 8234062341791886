"""The stage that runs modifiers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import set_column, texts_of
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.kernels.texts import Texts

Modifier = DocumentModifier | Callable[..., Any]


@builtin
class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes a field of documents by a modifier, a function of the value, or a list of these in order.

    ``input_fields`` is one field for all modifiers, a list with one for each, or a list of lists if a modifier takes
    several fields, which it gets as keyword arguments. ``output_fields`` names the fields of the results: one, or one
    for each; None writes a result back to its input field.

        Modify([UnicodeReformatter(), NewlineNormalizer()])
        Modify(str.lower, input_fields="title", output_fields="title_lower")
        Modify(lambda title, body: title + body, input_fields=[["title", "body"]], output_fields="text")

    Results may be texts, numbers or any other values that fit one column. A null stays null and is not passed to the
    modifier of a single field. The ledger counts the documents in which an existing field has changed, and what
    modifiers count themselves.
    """

    accounts_for_documents = True
    row_wise = True

    def __init__(
        self,
        modifier_fn: Modifier | Sequence[Modifier],
        input_fields: str | Sequence[str] | Sequence[Sequence[str]] = "text",
        output_fields: str | Sequence[str | None] | None = None,
    ) -> None:
        self.modifiers = _list_of_modifiers(modifier_fn)
        self.sources = _sources(input_fields, len(self.modifiers))
        self.targets = _targets(output_fields, self.sources)

    def inputs(self) -> tuple[list[str], list[str]]:
        made: set[str] = set()
        needed: dict[str, None] = {}
        for source, target in zip(self.sources, self.targets, strict=True):
            needed.update(dict.fromkeys(name for name in source if name not in made))
            made.add(target)
        return ["data"], list(needed)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(dict.fromkeys(self.targets))

    def preload(self) -> None:
        for one in self.modifiers:
            if isinstance(one, DocumentModifier):
                one.preload()

    def made_of(self) -> Sequence[object]:
        return self.modifiers

    def setup(self, worker_metadata: Any = None) -> None:
        for one in self.modifiers:
            if isinstance(one, DocumentModifier):
                one.setup()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        changed = np.zeros(task.num_items, dtype=bool)
        for one, source, target in zip(self.modifiers, self.sources, self.targets, strict=True):
            if isinstance(one, DocumentModifier):
                one.take_counters()  # of an attempt that failed
            if len(source) > 1:
                column = _from_several(task, one, source)
            else:
                by_text = isinstance(one, DocumentModifier) and _is_text(task.data.column(source[0]))
                column, touched = (_from_texts if by_text else _from_values)(task, one, source[0])
                if source[0] == target:
                    changed |= touched
                    column = column if touched.any() else None
            if column is not None:
                put_column(task, target, column)
            if isinstance(one, DocumentModifier):
                task.account.counters.update(one.take_counters())
        if changed.any():
            task.account.counters["documents changed"] += int(changed.sum())
        return task


def put_column(task: DocumentBatch, name: str, column: pa.Array | pa.ChunkedArray) -> None:
    """Set a column of a batch. A column of JSON text stays one: a writer cannot recognize it by a single value."""
    schema = task.data.schema
    where = schema.get_field_index(name)
    old = schema.field(where) if where >= 0 else None
    kept = old is not None and old.type == column.type and (old.metadata or {}).get(b"gristmill") == b"json"
    # without the note that each text is JSON: modified texts may not be
    set_column(task, old.with_metadata({b"gristmill": b"json"}) if old is not None and kept else name, column)


def _from_texts(task: DocumentBatch, modifier: Any, field: str) -> tuple[Any, Array]:
    """Return the modified column, and which texts differ. Texts that stay are neither decoded nor copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from gristmill.tasks.arrow import one_array

    column = task.data.column(field)
    texts = texts_of(task, field)
    may_change = np.asarray(modifier.candidates(texts), dtype=bool)
    if column.null_count:
        may_change &= column.is_valid().to_numpy()
    rows = np.flatnonzero(may_change)
    touched = np.zeros(len(texts), dtype=bool)
    if not len(rows):
        return column, touched
    before = texts.strings() if len(rows) == len(texts) else [texts[i] for i in rows.tolist()]
    after = modifier.modify_batch(before)
    if not isinstance(after, list) or len(after) != len(before):
        raise TypeError(f"modify_batch of {modifier.name!r} must return a list of {len(before)} texts, one for each.")
    if not all(isinstance(new, str) for new in after):
        return _of_other_values(texts, modifier, rows, after, column.is_valid().to_numpy())
    replacements = []
    for row, old, new in zip(rows.tolist(), before, after, strict=True):
        if new is not old and new != old:
            touched[row] = True
            replacements.append(new)
    if replacements:
        whole = one_array(column)
        column = pc.replace_with_mask(whole, pa.array(touched), pa.array(replacements, type=whole.type))
    return column, touched


def _of_other_values(
    texts: Texts, modifier: DocumentModifier, rows: Array, after: list[Any], valid: Array
) -> tuple[Any, Array]:
    """Return the column of a modifier that returns other values than texts, and which values differ."""
    if any(new is None for new in after):
        raise TypeError(f"{modifier.name!r} returned None for a text: it must return a value for each.")
    made = dict(zip(rows.tolist(), after, strict=True))
    values = [made.get(row, texts[row]) if valid[row] else None for row in range(len(texts))]
    touched = np.fromiter((row in made and made[row] != texts[row] for row in range(len(texts))), bool, len(texts))
    return _column(values, name=_name_of(modifier)), touched


def _from_values(task: DocumentBatch, modifier: Modifier, field: str) -> tuple[Any, Array]:
    modify = modifier.modify_document if isinstance(modifier, DocumentModifier) else modifier
    column = task.data.column(field)
    before = column.to_pylist()
    after = [None if value is None else modify(value) for value in before]
    pairs = zip(before, after, strict=True)
    touched = np.fromiter((type(a) is not type(b) or a != b for a, b in pairs), dtype=bool, count=len(before))
    return _column(after, column.type, _name_of(modifier)), touched


def _from_several(task: DocumentBatch, modifier: Modifier, fields: Sequence[str]) -> Any:
    modify: Any = modifier.modify_document if isinstance(modifier, DocumentModifier) else modifier
    rows = task.data.select(list(fields)).to_pylist()
    return _column([modify(**row) for row in rows], name=_name_of(modifier))


def _column(values: list[Any], wanted: Any = None, name: str = "") -> Any:
    """Return an array of the wanted type if the values fit, else of their own type."""
    import pyarrow as pa

    if wanted is not None:
        try:
            return pa.array(values, type=wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TypeError(f"the values that {name or 'the function'} returned do not fit one column: {error}") from None
    return array.cast(pa.large_string()) if pa.types.is_string(array.type) else array


def _name_of(modifier: Modifier) -> str:
    if isinstance(modifier, DocumentModifier):
        return repr(modifier.name)
    return repr(modifier.__name__) if inspect.isroutine(modifier) or isinstance(modifier, type) else ""


def _is_text(column: pa.ChunkedArray) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_large_string(column.type))


def _list_of_modifiers(given: Modifier | Sequence[Modifier]) -> list[Modifier]:
    modifiers = list(given) if isinstance(given, Sequence) else [given]
    if not modifiers:
        raise ValueError("Modify: there is no modifier in the list.")
    for one in modifiers:
        if isinstance(one, type) and issubclass(one, DocumentModifier):
            raise TypeError(f"{one.__name__} is a class: give an instance, {one.__name__}(...).")
        if not isinstance(one, DocumentModifier) and not callable(one):
            raise TypeError(f"Modify takes modifiers and functions, not {one!r}.")
    return modifiers


def _sources(given: Any, modifiers: int) -> list[list[str]]:
    if isinstance(given, str):
        return [[given]] * modifiers
    fields = [[one] if isinstance(one, str) else list(one) for one in given]
    if len(fields) == 1:
        return fields * modifiers
    if len(fields) != modifiers:
        raise ValueError(
            f"Modify: input_fields has {len(fields)} entries for {modifiers} modifiers: give one for all or one for "
            'each; for a modifier of several fields a list in the list, [["title", "text"]].'
        )
    return fields


def _targets(given: str | Sequence[str | None] | None, sources: list[list[str]]) -> list[str]:
    names = [given] if given is None or isinstance(given, str) else list(given)
    if len(names) == 1:
        names = names * len(sources)
    if len(names) != len(sources):
        raise ValueError(f"Modify: output_fields has {len(names)} entries for {len(sources)} modifiers.")
    targets = []
    for name, source in zip(names, sources, strict=True):
        if name is None and len(source) != 1:
            raise ValueError(f"Modify: a modifier of {', '.join(source)} needs an entry in output_fields.")
        targets.append(source[0] if name is None else name)
    return targets
