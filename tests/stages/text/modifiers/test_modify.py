import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import Pipeline
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.filters.columns import texts_of
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.modifiers import (
    DocumentModifier,
    LineRemover,
    Modify,
    NewlineNormalizer,
    PiiRedactor,
    QuotationNormalizer,
    UrlRemover,
)
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID, RAW


class Shout(DocumentModifier):
    def modify_document(self, text: str) -> str:
        return text.upper()


class Vowels(DocumentModifier):
    triggers = (b"[aeiou]",)

    def modify_batch(self, texts):
        self.count("texts seen", len(texts))
        return [text.translate(dict.fromkeys(map(ord, "aeiou"))) for text in texts]


def batch(**columns) -> DocumentBatch:
    return DocumentBatch(data=pa.table(columns))


def test_a_modifier_of_one_text_works_on_batches_and_the_other_way_round():
    assert Shout().modify_batch(["a", "b"]) == ["A", "B"]
    assert Vowels().modify_document("banana") == "bnn"
    with pytest.raises(TypeError, match="neither modify_document nor modify_batch"):
        DocumentModifier().modify_document("a")


def test_hidden_columns_other_columns_and_their_order_stay():
    table = pa.table({ID: ["f#0", "f#1"], "text": ["a", "B"], "n": [1, None], RAW: [b"{}", b"[]"]})
    after = Modify(Shout()).process(DocumentBatch(data=table)).data
    assert after.column_names == table.column_names
    assert after.drop(["text"]).to_pydict() == table.drop(["text"]).to_pydict()
    assert after["text"].to_pylist() == ["A", "B"] and after["text"].type == pa.large_string()


def test_only_texts_with_the_trigger_are_shown_to_the_modifier():
    task = Modify(Vowels()).process(batch(text=["xyz", "abc", None, ""]))
    assert task.data["text"].to_pylist() == ["xyz", "bc", None, ""]
    assert task.account.counters == {"texts seen": 1, "documents changed": 1}


def test_where_nothing_changes_the_column_is_the_same_memory_and_the_cache_stays():
    task = batch(text=["xyz", "ABC"])
    column, texts = task.data["text"], texts_of(task, "text")
    task = Modify([Vowels(), NewlineNormalizer()]).process(task)
    assert task.data["text"].chunk(0).buffers()[2].address == column.chunk(0).buffers()[2].address
    assert task.cache["text"] is texts
    assert not task.account.counters


def test_the_cache_of_a_changed_column_goes_and_of_others_stays():
    task = batch(text=["abc"], title=["xyz"])
    texts_of(task, "text"), texts_of(task, "title")
    title = task.cache["title"]
    task = Modify(Vowels()).process(task)
    assert task.cache == {"title": title}
    assert texts_of(task, "text").strings() == ["bc"]


def test_a_column_in_many_chunks_and_slices_is_changed_in_the_right_rows():
    column = pa.chunked_array([["ab", "xx"], ["ee"], [], [None, "yy", "ia"]], type=pa.large_string()).slice(1, 4)
    task = Modify(Vowels()).process(batch(text=column))
    assert task.data["text"].to_pylist() == ["xx", "", None, "yy"]


def test_an_empty_batch_stays_empty():
    task = Modify([Vowels(), str.upper]).process(batch(text=pa.array([], pa.large_string())))
    assert task.num_items == 0 and task.columns == ["text"]


def test_a_list_runs_in_order_each_on_its_field():
    task = batch(text=["Hello"], title=["World"])
    stage = Modify([Shout(), Vowels(), str.lower], input_fields=["text", "title", "text"])
    assert stage.process(task).data.to_pydict() == {"text": ["hello"], "title": ["Wrld"]}
    assert stage.inputs() == (["data"], ["text", "title"])
    assert stage.outputs() == (["data"], ["text", "title"])


def test_results_go_to_fields_of_their_own_and_from_there_on():
    stage = Modify([Shout(), len], input_fields=["text", "loud"], output_fields=["loud", "length"])
    task = stage.process(batch(text=["abc", None]))
    assert task.data.to_pydict() == {"text": ["abc", None], "loud": ["ABC", None], "length": [3, None]}
    assert stage.inputs() == (["data"], ["text"]) and stage.outputs() == (["data"], ["loud", "length"])
    assert "documents changed" not in task.account.counters


def test_a_function_of_several_fields_gets_them_as_keywords():
    stage = Modify(lambda title, text: f"{title}: {text}", input_fields=[["title", "text"]], output_fields="text")
    assert stage.process(batch(title=["a"], text=["b"])).data["text"].to_pylist() == ["a: b"]
    with pytest.raises(ValueError, match="output_fields"):
        Modify(lambda title, text: title + text, input_fields=[["title", "text"]])


def test_numbers_keep_their_type():
    task = Modify(lambda n: n + 1, input_fields="n").process(batch(n=pa.array([1, None], pa.int16())))
    assert task.data["n"].to_pylist() == [2, None] and task.data["n"].type == pa.int16()
    assert task.account.counters == {"documents changed": 1}


def test_a_change_that_does_not_fit_the_recipe_is_an_error():
    with pytest.raises(TypeError, match=r"give an instance, Shout\(\.\.\.\)"):
        Modify(Shout)
    with pytest.raises(ValueError, match="no modifier"):
        Modify([])
    with pytest.raises(TypeError, match="not 'upper'"):
        Modify(["upper"])
    with pytest.raises(ValueError, match="2 entries for 3 modifiers"):
        Modify([Shout()] * 3, input_fields=["a", "b"])
    with pytest.raises(ValueError, match="2 entries for 1 modifiers"):
        Modify(Shout(), output_fields=["a", "b"])


@pytest.mark.parametrize("answer", [[], ["a", "b"], "a", [None]], ids=str)
def test_a_modifier_that_answers_nonsense_is_named(answer):
    class Nonsense(DocumentModifier):
        def modify_batch(self, texts):
            return answer

    with pytest.raises(TypeError, match="'nonsense'"):
        Modify(Nonsense()).process(batch(text=["x"]))


def test_counts_of_an_attempt_that_failed_are_not_counted():
    class Fails(Vowels):
        broken = True

        def modify_batch(self, texts):
            texts = super().modify_batch(texts)
            if self.broken:
                raise RuntimeError
            return texts

    stage = Modify(Fails())
    with pytest.raises(RuntimeError):
        stage.process(batch(text=["a"]))
    Fails.broken = False
    assert stage.process(batch(text=["a"])).account.counters["texts seen"] == 1


def test_arguments_are_remembered_for_configuration_files():
    modifier = LineRemover(patterns=["x"])
    assert arguments_of(modifier) == {"patterns": ["x"]}
    assert arguments_of(Modify(modifier, input_fields="body")) == {"modifier_fn": modifier, "input_fields": "body"}
    assert pickle.loads(pickle.dumps(modifier)).modify_document("x\ny") == "y"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.text("ab\n” ", max_size=8), max_size=8))
def test_the_stage_gives_what_modifiers_give_text_by_text(texts):
    modifiers = [QuotationNormalizer(), NewlineNormalizer(), Vowels()]
    task = Modify(modifiers).process(batch(text=pa.array(texts, pa.large_string())))
    expected = list(texts)
    for one in modifiers:
        expected = [None if text is None else one.modify_document(text) for text in expected]
    assert task.data["text"].to_pylist() == expected
    assert task.account.counters["documents changed"] == np.sum([a != b for a, b in zip(texts, expected, strict=True)])


def test_a_pipeline_of_modifiers_runs_on_workers():
    texts = ["see https://example.com/x now", "“quoted” by bob@example.com", "plain", None] * 50
    tasks = [batch(text=texts, **{ID: [f"f#{i * 200 + n}" for n in range(200)]}) for i in range(4)]
    pipeline = Pipeline("modify").add_stage(Modify([UrlRemover(), QuotationNormalizer(), PiiRedactor()]))
    result = pipeline.run(initial_tasks=tasks)
    rows = [row for task in result for row in zip(*task.data.to_pydict().values(), strict=True)]
    wanted = ["see  now", '"quoted" by {{EMAIL}}', "plain", None] * 200
    assert sorted(rows, key=lambda row: int(row[1][2:])) == [(text, f"f#{n}") for n, text in enumerate(wanted)]


class Length(DocumentModifier):
    def modify_document(self, text):
        return len(text)


def test_a_modifier_may_return_numbers_for_a_field_of_its_own():
    task = Modify(Length(), output_fields="length").process(batch(text=["abc", None, ""]))
    assert task.data["length"].to_pylist() == [3, None, 0] and task.data["length"].type == pa.int64()
    assert task.data["text"].to_pylist() == ["abc", None, ""]
    assert not task.account.counters


def test_a_modifier_may_return_numbers_in_place_of_the_text():
    task = Modify(Length()).process(batch(text=["abc", ""]))
    assert task.data["text"].to_pylist() == [3, 0]
    assert task.account.counters == {"documents changed": 2}


def test_numbers_of_a_modifier_are_written(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "abc"}\n{"text": ""}\n')
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), Modify(Length(), output_fields="length")]
    assert Pipeline("p", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).run().ok
    lines = "".join(path.read_text() for path in (tmp_path / "out").glob("part-*")).splitlines()
    assert [json.loads(line)["length"] for line in lines] == [3, 0]


@pytest.mark.parametrize("modifier", [Length(), lambda text: len(text) or "none"], ids=["modifier", "function"])
def test_values_that_do_not_fit_one_column_name_the_modifier(modifier):
    if isinstance(modifier, Length):
        modifier.triggers = (b"a",)  # the other text stays: a text beside a number
    with pytest.raises(TypeError, match=r"('length'|'<lambda>') returned do not fit one column"):
        Modify(modifier, output_fields="n").process(batch(text=["abc", ""]))
