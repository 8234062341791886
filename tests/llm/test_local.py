"""Models in the process: the same answers as `generate`, whatever comes together, and constrained ones are valid."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("llguidance")

import jsonschema
import torch
from tests.llm.checkpoint import make_checkpoint

from gristmill.llm.errors import Refused
from gristmill.llm.local.backend import LocalBackend, loader
from gristmill.llm.local.sampling import Sampler, Settings
from gristmill.llm.requests import Answer, Request

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "tags"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["one", "two"]}, "minItems": 2, "maxItems": 4},
    {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "maxLength": 40},
            "score": {"type": "integer", "minimum": 1, "maximum": 5},
            "a_rather_long_name_that_may_be_left_out": {"type": "number"},
            "ok": {"type": "boolean"},
        },
        "required": ["reason", "score"],
        "additionalProperties": False,
    },
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    return make_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answers(checkpoint: str, requests: list[Request], slots: int = 8, one_by_one: bool = False) -> list[Any]:
    async def main() -> list[Any]:
        backend = LocalBackend("tiny", loader(checkpoint, "cpu", "auto", {}), slots=slots, longest=512)
        await backend.open()
        if one_by_one:
            found: list[Any] = [await backend.complete(request) for request in requests]
        else:
            found = await asyncio.gather(*map(backend.complete, requests), return_exceptions=True)
        await backend.close()
        return found

    return asyncio.run(main())


def chat(text: str, **parameters: Any) -> Request:
    return Request(messages=[{"role": "user", "content": text}], parameters=parameters)


def test_the_most_probable_tokens_are_those_of_generate(checkpoint):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    requests = [
        chat("fox " * number.randrange(1, 30), temperature=0.0, max_tokens=number.randrange(1, 40)) for _ in range(12)
    ]
    found = answers(checkpoint, requests, slots=3)
    model, tokenizer = loader(checkpoint, "cpu", "auto", {})()
    for request, answer in zip(requests, found, strict=True):
        text = tokenizer.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        most = request.parameters["max_tokens"]
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, do_sample=False)
        tokens = made[0, ids.shape[1] :].tolist()
        assert answer.text == tokenizer.decode(tokens, skip_special_tokens=True)
        assert (answer.input_tokens, answer.output_tokens) == (ids.shape[1], len(tokens))
        assert answer.finish_reason == ("stop" if tokens[-1] == tokenizer.eos_token_id else "length")


def test_answers_do_not_depend_on_what_else_is_computed(checkpoint):
    requests = [chat(f"number {n}", temperature=0.8, top_p=0.9, seed=n % 5, max_tokens=5 + n) for n in range(20)]
    together = answers(checkpoint, requests, slots=7)
    alone = answers(checkpoint, requests, slots=2, one_by_one=True)
    assert [one.text for one in together] == [one.text for one in alone]
    assert len({one.text for one in together}) > 15
    assert answers(checkpoint, [chat("x", seed=1)])[0].text != answers(checkpoint, [chat("x", seed=2)])[0].text


@pytest.mark.parametrize("schema", SCHEMAS)
def test_constrained_answers_are_valid_whatever_the_limit(checkpoint, schema):
    """Weights are random, so nothing but the constraint makes JSON."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    messages = [{"role": "user", "content": "Write."}]
    requests = [
        Request(
            messages=messages,
            schema=schema,
            parameters={"max_tokens": number.randrange(32, 90), "seed": number.randrange(10**6), "temperature": t},
        )
        for t in [0.0] + [1.0] * 12 + [1.5] * 12
    ]
    for answer in answers(checkpoint, requests):
        assert isinstance(answer, Answer) and answer.finish_reason == "stop"
        jsonschema.validate(json.loads(answer.text), schema)


def test_constrained_and_free_requests_share_steps(checkpoint):
    free = [chat(f"n {n}", temperature=0.0, max_tokens=20) for n in range(4)]
    limited = [Request(prompt=f"{n}", schema=SCHEMAS[1], parameters={"max_tokens": 40}) for n in range(4)]
    both = answers(checkpoint, [one for pair in zip(free, limited, strict=True) for one in pair], slots=4)
    assert [one.text for one in both[::2]] == [one.text for one in answers(checkpoint, free)]
    assert all(json.loads(one.text) for one in both[1::2])


def test_a_request_that_does_not_fit_is_refused_and_others_are_answered(checkpoint):
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    requests = [
        chat("fox " * 600, max_tokens=10),
        chat("a", max_tokens=5),
        chat("a", top_k=3),
        Request(messages=image),
        Request(prompt="x", schema={"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
    ]
    long, good, unknown, picture, schema = answers(checkpoint, requests)
    assert isinstance(good, Answer)
    assert isinstance(long, Refused) and "more than the 512 of the model's slots" in str(long)
    assert isinstance(unknown, Refused) and "do not know top_k" in str(unknown)
    assert isinstance(picture, Refused) and isinstance(schema, Refused)


def test_samples_have_the_probabilities_of_the_softmax():
    sampler = Sampler(4, 3, torch.device("cpu"))
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(4, -1)
    counts: Counter[int] = Counter()
    for seed in range(3000):
        for slot in range(4):
            sampler.set(slot, Settings(temperature=1.0, seed=seed * 4 + slot))
        counts.update(sampler.chosen(logits, None).tolist())
    wanted = torch.tensor([0.0, 1.0, 2.0]).softmax(0) * counts.total()
    assert all(abs(counts[token] - wanted[token]) < 4 * wanted[token] ** 0.5 for token in range(3))
    for slot in range(4):
        sampler.set(slot, Settings(temperature=1.0, top_p=0.6, seed=slot))
    assert all(sampler.chosen(logits, None).tolist() == [2] * 4 for _ in range(20))
