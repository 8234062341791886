"""The stages against `transformers serve`, a real server of others, which ignores ``response_format``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.llm.checkpoint import make_checkpoint

from gristmill import DocumentBatch, LocalExecutor, Pipeline
from gristmill.llm.server import LocalServer, RunningServer
from gristmill.stages.asynchronous import BlockingStage
from gristmill.tasks.document import ID
from gristmill.text import (
    Endpoint,
    JsonlReader,
    JsonlWriter,
    LLMClassifier,
    LLMJudge,
    LLMRewriter,
    LLMStage,
    QAGenerator,
    Translate,
)

_NEEDED = ("torch", "transformers", "fastapi", "uvicorn", "openai")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(module) is None for module in _NEEDED), reason="needs transformers[serving]"
)
SMALL: dict[str, Any] = {"max_tokens": 6, "temperature": 0.0, "seed": 1}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    return make_checkpoint(tmp_path_factory.mktemp("model"), positions=8192)


def server_of(checkpoint: str) -> dict[str, Any]:
    words = [str(Path(sys.executable).parent / "transformers"), "serve", checkpoint, "--device", "cpu"]
    command = [*words, "--host", "127.0.0.1", "--port", "{port}", "--log-level", "error"]
    return {"command": command, "environment": ENVIRONMENT, "start_s": 240}


@pytest.fixture(scope="module")
def base_url(checkpoint) -> Iterator[str]:
    """A server for several runs."""
    with asyncio.Runner() as runner:
        server = RunningServer(LocalServer(**server_of(checkpoint)))
        runner.run(server.start())
        yield server.base_url
        runner.run(server.stop())


def run(folder: Path, *stages: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The documents and the quarantine of a run over four documents."""
    folder.mkdir()
    (folder / "in.jsonl").write_text("".join(json.dumps({"text": f"the fox {n}"}) + "\n" for n in range(4)))
    whole = [JsonlReader(folder / "in.jsonl"), *stages, JsonlWriter(folder / "out")]
    Pipeline("p", stages=whole).run(LocalExecutor({"view": "off", "num_cpus": 2}), allow_empty=True)
    found = []
    for files in ((folder / "out").glob("part-*.jsonl"), (folder / "out/quarantine").glob("*.jsonl")):
        found.append([json.loads(line) for path in sorted(files) for line in path.read_text().splitlines()])
    return found[0], found[1]


def test_a_server_that_the_run_starts_and_stops(checkpoint, tmp_path):
    model = Endpoint(checkpoint, server=server_of(checkpoint), concurrency=4)
    rows, bad = run(tmp_path / "run", LLMStage(model, "Say {{ text }}", parameters=SMALL))
    assert len(rows) == 4 and not bad and all(isinstance(row["answer"], str) for row in rows)
    running = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [words for words in running if checkpoint in words]


def test_the_stages_of_texts_with_and_without_streaming(base_url, checkpoint, tmp_path):
    model = Endpoint(checkpoint, base_url, concurrency=4)
    streamed = Endpoint(checkpoint, base_url, concurrency=4, stream=True)
    options: dict[str, Any] = {"parameters": SMALL, "system": "Be short.", "cache": False}
    rows, bad = run(
        tmp_path / "run",
        LLMStage(model, "Say {{ text }}", output="whole", **options),
        LLMStage(streamed, "Say {{ text }}", output="parts", **options),
        LLMRewriter(streamed, "distil", parameters=SMALL),
        Translate(model, "German", parameters=SMALL),
    )
    assert len(rows) == 4 and not bad
    # Random weights write parts of characters, which the server decodes differently.
    whole, parts = ([row[name].replace("\ufffd", "") for row in rows] for name in ("whole", "parts"))
    assert whole == parts and any(whole)
    assert all(isinstance(row[name], str) for row in rows for name in ("rewritten", "translation"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda model: LLMJudge(model, "5 is good", parameters=SMALL),
        lambda model: LLMClassifier(model, ["a", "b"], parameters=SMALL),
        lambda model: QAGenerator(model, parameters=SMALL),
    ],
    ids=["judge", "classifier", "questions"],
)
def test_structured_answers_are_asked_for_twice_and_then_quarantined(base_url, checkpoint, caplog, make, stream):
    """The server ignores ``response_format``, and random weights write no JSON."""
    (stage,) = make(Endpoint(checkpoint, base_url, concurrency=4, stream=stream)).flatten()
    batch = DocumentBatch(pa.table({ID: ["a#0", "a#1"], "text": ["the fox", "the dog"]}))
    blocking = BlockingStage(stage)
    made = blocking.process(batch)
    stage.teardown()
    blocking.close()
    bad = made.take_account().bad
    assert made.num_items == 0 and [record.position for record in bad] == [0, 1]
    assert all("the answer is not JSON" in record.reason and "asked again" in record.reason for record in bad)
    assert all(record.raw for record in bad)
    assert "ignores response_format" in caplog.text
