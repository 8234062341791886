"""The stages made of `LLMStage`: judge, classifier, rewriter, questions and translation."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from gristmill import DocumentBatch
from gristmill.stages.asynchronous import BlockingStage
from gristmill.stages.text.llm.base import segments
from gristmill.stages.text.llm.rewriter import TASKS
from gristmill.tasks.document import ID
from gristmill.text import Endpoint, LLMClassifier, LLMJudge, LLMRewriter, QAGenerator, Translate


def made(stage: Any, *texts: str) -> tuple[DocumentBatch, dict[str, Any]]:
    """The documents after all stages that a stage decomposes into, and what they reported."""
    task = DocumentBatch(pa.table({ID: [f"a.jsonl#{n}" for n in range(len(texts))], "text": list(texts)}))
    found: dict[str, Any] = {"bad": [], "dropped": []}
    for one in stage.flatten():
        blocking = BlockingStage(one)
        task = blocking.process(task)
        one.teardown()
        blocking.close()
        account = task.take_account()
        if account is not None:
            found["bad"] += account.bad
            found["dropped"] += [(d.reasons, d.scores) for d in account.dropped]
    return task, found


@pytest.fixture
def model(quick_server):
    return Endpoint("m", quick_server.base_url, concurrency=16, backoff_s=0.01)


def reply(value: Any) -> str:
    return f"REPLY<<{json.dumps(value)}>>"


def test_a_judge_scores_and_drops(model):
    stage = LLMJudge(model, "5 is good {not a template}", min_score=3, output="lesson")
    texts = [reply({"reason": "r", "score": score}) for score in (5, 2, 3, 9)]
    task, found = made(stage, *texts)
    assert task.data["lesson"].to_pylist() == [5, 3] and task.data["lesson"].type == pa.int64()
    assert task.data["lesson_reason"].to_pylist() == ["r", "r"]
    assert found["dropped"] == [(["score too low"], [2])] and len(found["bad"]) == 1


def test_a_judge_of_several_criteria_gives_each_a_column_and_the_mean(model):
    stage = LLMJudge(model, {"style": "s", "facts": "f"}, scale=(0, 10))
    task, _ = made(stage, reply({"reason": "r", "style": 4, "facts": 9}))
    row = task.to_pylist()[0]
    assert (row["score_style"], row["score_facts"], row["score"]) == (4, 9, 6.5)


def test_a_classifier_gives_labels_and_keeps_some(model):
    labels = {"news": "reports {{ events }}", "other": "anything else"}
    stage = LLMClassifier(model, labels, filter_by=["news"])
    task, found = made(stage, *(reply({"label": label}) for label in ("news", "other", "sports")))
    assert task.data["label"].to_pylist() == ["news"] and found["dropped"] == [(["other"], None)]
    assert "sports" in found["bad"][0].reason
    task, _ = made(LLMClassifier(model, ["a", "b"], several=True), reply({"label": ["a", "b"]}), reply({"label": []}))
    assert task.data["label"].to_pylist() == [["a", "b"], []]


@pytest.mark.parametrize("task", [*TASKS, "Shorten the text."])
def test_each_task_rewrites(model, task):
    rewritten, _ = made(LLMRewriter(model, task, output="text"), "REPLY<<new>>", "another")
    first, second = rewritten.data["text"].to_pylist()
    assert first == "new" and second.startswith("answer ") and second.endswith("</text>")


def test_translations_of_segments_are_put_together(model):
    text = "REPLY<<one>>\n\n \nREPLY<<two>>\n\n\nREPLY<<three>>"
    task, _ = made(Translate(model, "German", segment_chars=14), text, "", "REPLY<<x>>")
    assert task.data["translation"].to_pylist() == ["one\n\n \ntwo\n\n\nthree", "", "x"]


def test_questions_are_a_list_of_objects(model):
    pairs = [{"question": "q?", "answer": "a"}] * 2
    task, found = made(QAGenerator(model, pairs=2), reply({"pairs": pairs}), reply({"pairs": pairs * 2}))
    assert task.to_pylist()[0]["qa_pairs"] == pairs and len(found["bad"]) == 1


def test_segments_are_the_text_and_no_longer_than_allowed():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    for _ in range(300):
        parts = ["word", "a. ", "\n\n", " \n \n\t", "x" * number.randrange(30), "! ", "\n", " "]
        text = "".join(number.choice(parts) for _ in range(number.randrange(60)))
        most = number.randrange(1, 40)
        pieces = segments(text, most)
        assert "".join(piece + between for piece, between in pieces) == text
        assert all(len(piece) <= most for piece, _ in pieces)
    assert segments("One. Two.\n\nThree. Four.", 12) == [("One. Two.", "\n\n"), ("Three. Four.", "")]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: LLMJudge(m, ""), "rubric must be"),
        (lambda m: LLMJudge(m, "x", scale=(5, 1)), "scale must be two whole numbers"),
        (lambda m: LLMClassifier(m, ["a"]), "labels must be at least two"),
        (lambda m: LLMClassifier(m, ["a", "b"], filter_by=["c"]), "filter_by names 'c'"),
        (lambda m: LLMRewriter(m, "distill"), "there is no task 'distill'"),
        (lambda m: LLMRewriter(m, segment_chars=0), "segment_chars must be"),
        (lambda m: QAGenerator(m, pairs=0), "pairs must be"),
        (lambda m: Translate(m, ""), "target must be a language"),
        (lambda m: Translate(m, text_field="a b"), "text_field must be a name"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(model, make, words):
    with pytest.raises(ValueError, match=words):
        make(model)
