import pickle
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import rejoined

rows = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.none() | st.text(),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "flag": st.none() | st.booleans(),
        }
    ),
    max_size=30,
)
SCHEMA = pa.schema(
    {"text": pa.large_string(), "n": pa.int64(), "tags": pa.list_(pa.large_string()), "flag": pa.bool_()}
)


def batch_of(records: list[dict]) -> DocumentBatch:
    return DocumentBatch(data=pa.Table.from_pylist(records, schema=SCHEMA))


def pickled_size(batch: DocumentBatch) -> tuple[int, int]:
    """Bytes in the pickle and in the buffers beside it."""
    buffers: list[pickle.PickleBuffer] = []
    inline = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    assert pickle.loads(inline, buffers=buffers) == batch
    return len(inline), sum(len(buffer.raw()) for buffer in buffers)


@pytest.fixture
def big() -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": [f"{i:0100}" for i in range(20_000)], "n": range(20_000)}))


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"text": ["a", None], "n": [1, 2]}),
        pa.record_batch({"text": ["a", None], "n": [1, 2]}),
        pd.DataFrame({"text": ["a", None], "n": [1, 2]}, index=[7, 9]),
        pd.DataFrame({"text": ["a", None], "n": [1, 2]}).set_index(pd.Index(["x", "y"], name="key")),
    ],
    ids=["table", "record batch", "frame", "frame with a named index"],
)
def test_whatever_it_is_made_of_there_is_a_table_inside(data):
    batch = DocumentBatch(data=data, dataset_name="d")
    assert isinstance(batch.data, pa.Table)
    assert batch.columns == batch.get_columns() == ["text", "n"]
    assert batch.to_pyarrow().schema == pa.schema({"text": pa.large_string(), "n": pa.int64()})
    assert batch.to_pyarrow().to_pylist() == [{"text": "a", "n": 1}, {"text": None, "n": 2}]
    assert batch.num_items == 2


def test_frames_can_be_assigned():
    batch = DocumentBatch(data=pa.table({"text": ["a", "b", "c"]}), task_id="3")
    frame = batch.to_pandas()
    batch.data = frame[frame.text != "b"]
    assert isinstance(batch.data, pa.Table)
    assert batch.columns == ["text"]
    assert batch.to_pandas().text.tolist() == ["a", "c"]
    assert batch.task_id == "3"


@pytest.mark.parametrize("data", [None, "text", [{"text": "a"}], {"text": ["a"]}, 3])
def test_other_data_is_an_error_that_names_what_is_accepted(data):
    with pytest.raises(TypeError, match="pyarrow Table or RecordBatch or a pandas DataFrame"):
        DocumentBatch(data=data)
    batch = DocumentBatch(data=pa.table({"a": [1]}))
    with pytest.raises(TypeError):
        batch.data = data
    assert batch.num_items == 1


def test_an_index_that_pandas_wrote_into_a_file_stays_a_column():
    table = pa.Table.from_pandas(pd.DataFrame({"n": [1, 2]}, index=pd.Index(["x", "y"], name="id")))
    batch = DocumentBatch(data=table)
    batch.data = batch.to_pandas()
    assert sorted(batch.columns) == ["id", "n"]


def test_the_users_own_schema_metadata_is_kept():
    table = pa.table({"a": ["x"]}).replace_schema_metadata({"source": "here"})
    assert DocumentBatch(data=table).to_pyarrow().schema.metadata == {b"source": b"here"}


def test_a_table_that_needs_no_change_is_not_copied():
    table = pa.table({"text": pa.array(["a"], pa.large_string())})
    assert DocumentBatch(data=table).to_pyarrow() is table


def test_columns_of_several_kinds_come_back_from_pandas_whatever_was_done_to_the_frame():
    frame = DocumentBatch(data=pd.DataFrame({"a": [[1, "x"], 3], "text": ["t", "u"], "b": [1, "y"]})).to_pandas()
    turned = DocumentBatch(data=frame[["b", "text", "a"]])
    assert turned.columns == ["b", "text", "a"]
    assert turned.to_pylist() == [{"b": 1, "text": "t", "a": [1, "x"]}, {"b": "y", "text": "u", "a": 3}]
    more = DocumentBatch(data=frame.assign(new=[1, "z"]))
    assert [row["new"] for row in more.to_pylist()] == [1, "z"]
    frame["a"] = pd.Series([np.array([1, 2]), pd.NA], dtype=object)
    assert [row["a"] for row in DocumentBatch(data=frame).to_pylist()] == [[1, 2], None]
    alone = DocumentBatch(data=frame[["b"]])
    assert alone.to_pylist() == [{"b": 1}, {"b": "y"}]


@given(rows)
def test_pandas_and_back_changes_nothing(records):
    batch = batch_of(records)
    # a column of nulls alone has no type in pandas
    back = DocumentBatch(data=batch.to_pandas()).to_pyarrow()
    assert back.to_pylist() == records


@given(rows, st.lists(st.integers(0, 30)))
def test_slices_that_cover_a_batch_are_the_batch(records, cuts):
    batch = batch_of(records)
    bounds = [0, *sorted(min(c, len(records)) for c in cuts), len(records)]
    parts = [batch.slice(a, b) for a, b in pairwise(bounds)]
    assert [part.num_items for part in parts] == [b - a for a, b in pairwise(bounds)]
    assert pa.concat_tables([part.data for part in parts]).to_pylist() == records


@given(rows, st.integers(0, 30), st.integers(0, 30))
def test_a_slice_survives_pickling(records, a, b):
    part = batch_of(records * 20).slice(a, b)
    again = pickle.loads(pickle.dumps(part, protocol=5))
    assert again == part
    assert again.data.to_pylist() == (records * 20)[a:b]


def test_a_slice_shares_memory_with_the_whole(big):
    before = pa.total_allocated_bytes()
    parts = [big.slice(i, i + 100) for i in range(0, 20_000, 100)]
    assert pa.total_allocated_bytes() - before < 10_000
    assert sum(part.num_items for part in parts) == big.num_items


def test_a_whole_batch_is_pickled_without_copying_its_buffers(big):
    before = pa.total_allocated_bytes()
    inline, beside = pickled_size(big)
    assert inline < 5_000
    assert beside == big.data.get_total_buffer_size()
    assert pa.total_allocated_bytes() == before


def test_a_pickled_slice_takes_only_what_it_shows(big):
    inline, beside = pickled_size(big.slice(10_000, 10_010))
    assert inline + beside < 10_000
    halves = [sum(pickled_size(half)) for half in (big.slice(0, 10_000), big.slice(10_000, 20_000))]
    assert sum(halves) < 1.01 * big.data.nbytes + 10_000


@dataclass(slots=True, repr=False)
class Slotted(DocumentBatch):
    label: str = ""


def test_a_subclass_with_slots_is_cut_and_pickled_too(big):
    whole = Slotted(data=big.data, label="x")
    part = whole.slice(5, 15)
    assert (part.label, part.num_items, type(part)) == ("x", 10, Slotted)
    inline, beside = pickled_size(part)
    assert inline + beside < 10_000


def test_its_repr_is_short(big):
    assert len(repr(big)) < 100


def test_importing_it_loads_neither_arrow_nor_pandas():
    code = "import sys, gristmill.tasks; print({'pyarrow', 'pandas', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


masks = st.lists(st.booleans(), min_size=30, max_size=30)


@given(rows, masks, masks)
def test_what_is_kept_twice_is_kept_by_both(records, first, second):
    batch = batch_of(records)
    once = batch.keep(first[: len(records)])
    twice = once.keep(second[: once.num_items])
    wanted = [record for record, kept in zip(records, first, strict=False) if kept]
    gone = [record for record, kept in zip(wanted, second, strict=False) if not kept]
    left = [record for record, kept in zip(wanted, second, strict=False) if kept]
    assert (once.num_items, twice.num_items, twice.columns) == (len(wanted), len(left), batch.columns)
    assert [row for dropped in twice.account.dropped for row in dropped.rows.to_pylist()][-len(gone) or 99 :] == gone
    assert twice.data.to_pylist() == left and twice.data.num_rows == twice.num_items
    assert once.data.to_pylist() == wanted and batch.data.to_pylist() == records


def test_no_row_is_copied_before_data_is_read(big):
    kept = big.keep([i % 3 > 0 for i in range(20_000)])
    table, chosen = kept.selection()
    assert table is big.data and len(chosen) == kept.num_items == 13_333
    assert kept.data.num_rows == 13_333
    assert kept.selection()[0] is kept.data and kept.selection()[1] is None


def test_a_batch_that_rows_were_taken_from_can_be_cut_pickled_compared_and_set(big):
    def kept() -> DocumentBatch:
        return big.keep([i < 10 for i in range(20_000)])

    assert kept().slice(2, 4).data.column("n").to_pylist() == [2, 3]
    assert kept() == pickle.loads(pickle.dumps(kept())) == DocumentBatch(data=big.data.slice(0, 10))
    inline, beside = pickled_size(kept())
    assert inline + beside < 10_000
    other = kept()
    other.data = pa.table({"n": [1]})
    assert (other.num_items, other.columns) == (1, ["n"])


def test_a_subclass_with_slots_loses_rows_too(big):
    kept = Slotted(data=big.data, label="x").keep([i < 3 for i in range(20_000)])
    assert (kept.label, kept.num_items, kept.data.num_rows) == ("x", 3, 3)


@given(rows, masks, st.integers(1, 8), st.booleans())
def test_parts_are_put_together_again_whatever_was_done_to_them(records, mask, size, one_is_changed):
    whole = batch_of(records)
    parts = [whole.slice(start, start + size) for start in range(0, max(len(records), 1), size)]
    before = [part.data for part in parts]
    kept = [
        part.keep(mask[start : start + part.num_items]) for part, start in zip(parts, range(0, 30, size), strict=False)
    ]
    if one_is_changed:
        kept[-1].data = kept[-1].data.append_column("more", pa.nulls(kept[-1].num_items, pa.int64()))
    result = rejoined(whole.data, before, kept)
    wanted = [record for record, left in zip(records, mask, strict=False) if left]
    assert result.data.select(SCHEMA.names).to_pylist() == wanted
    assert ("more" in result.columns) == one_is_changed


def test_parts_that_kept_all_documents_are_the_whole(big):
    before = [big.data.slice(n * 5_000, 5_000) for n in range(4)]
    parts = [DocumentBatch(data=table).keep(np.ones(5_000, bool)) for table in before]
    assert rejoined(big.data, before, parts).data is big.data


def test_documents_that_are_not_selected_are_not_reported(big):
    big.account.counters["seen"] = 3
    big.cache["n"] = Numbers(np.arange(20_000))
    mask = np.arange(20_000) % 3 == 0
    selected = big.select(mask)
    assert selected.data["n"].to_pylist() == list(range(0, 20_000, 3)) == selected.cache["n"].values.tolist()
    assert selected.account.counters["seen"] == 3 and not selected.account.dropped
    kept = selected.keep(np.arange(selected.num_items) < 10)
    assert kept.account.dropped[0].rows["n"].to_pylist() == list(range(30, 20_000, 3))
    with pytest.raises(ValueError, match="one True or False for each"):
        big.select(mask[1:])


@dataclass
class Numbers:
    """Values that a batch keeps in its cache."""

    values: np.ndarray

    def select(self, mask: np.ndarray) -> "Numbers":
        return Numbers(self.values[mask])
