"""`LLMStage` in pipelines, with a real server in another process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gristmill import DocumentBatch, LocalExecutor, Pipeline
from gristmill.errors import PipelineError, PlanError
from gristmill.llm.cache import RequestCache
from gristmill.stages.asynchronous import BlockingStage
from gristmill.tasks.document import ID
from gristmill.text import Endpoint, JsonlReader, JsonlWriter, LLMStage

QUIET = {"view": "off", "num_cpus": 2}
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}, "why": {"type": "string"}},
    "required": ["score"],
}


def endpoint(server: Any, **options: Any) -> Endpoint:
    return Endpoint("m", server.base_url, **{"concurrency": 32, "backoff_s": 0.01, **options})


def batch(*texts: str) -> DocumentBatch:
    ids = [f"a.jsonl#{n}" for n in range(len(texts))]
    return DocumentBatch(pa.table({ID: ids, "text": list(texts)}))


def asked(stage: LLMStage, *texts: str) -> DocumentBatch:
    blocking = BlockingStage(stage)
    made = blocking.process(batch(*texts))
    stage.teardown()
    blocking.close()
    assert isinstance(made, DocumentBatch)
    return made


def write(folder: Path, count: int) -> Path:
    folder.mkdir()
    lines = (json.dumps({"text": f"document {n}", "n": n}) for n in range(count))
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The files of an output, without those of the run itself."""
    files = (path for path in folder.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def quarantined(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((folder / "quarantine").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_rows_keep_their_order_and_ids(quick_server):
    made = asked(LLMStage(endpoint(quick_server), "REPLY<<{{ text }}!>>"), *(f"t{n}" for n in range(200)))
    assert made.data["answer"].to_pylist() == [f"t{n}!" for n in range(200)]
    assert made.data[ID].to_pylist() == [f"a.jsonl#{n}" for n in range(200)]
    account = made.take_account()
    assert account.counters["requests"] == 200 and account.counters["output tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("structured", ["honour", "ignore", "refuse"])
def test_answers_match_the_schema_or_go_to_quarantine(start_server, caplog, stream, structured):
    server = start_server("--structured", structured)
    stage = LLMStage(
        endpoint(server, stream=stream),
        "Rate: REPLY<<{{ text }}>>",
        schema=SCHEMA,
        output=None,
        columns={"score": "score", "why": "why"},
    )
    right, other, wrong = '{"score": 4, "why": "w"}', '```json\n{"score": 2.0}\n```', '{"score": 9}'
    made = asked(stage, right, "no JSON", other, f"oops||{right}", f"{wrong}||{wrong}{wrong}", "REFUSE")
    account = made.take_account()
    assert made.data[ID].to_pylist() == ["a.jsonl#0", "a.jsonl#2", "a.jsonl#3"]
    assert made.data["score"].to_pylist() == [4, 2, 4] and made.data["score"].type == pa.int64()
    assert made.data["why"].to_pylist() == ["w", None, "w"] and "answer" not in made.columns
    bad = {record.position: record for record in account.bad}
    assert sorted(bad) == [1, 4, 5] and not account.dropped
    assert bad[1].raw == b"no JSON\nno JSON" and "is not JSON" in bad[1].reason and not bad[1].is_failure
    assert b'{"score": 9}\n{"score": 9}' in bad[4].raw and "9 is greater than the maximum of 5" in bad[4].reason
    assert bad[5].reason == "HTTP 400: the prompt is too long"
    assert account.counters["repairs"] == 3
    warned = [record.message for record in caplog.records if "response_format" in record.message]
    assert len(warned) == (structured != "honour")


def test_values_of_any_kind_are_columns_of_fixed_types(quick_server):
    value = {"list": ["a", "b"], "number": 1, "flag": True, "kind": "x", "object": {"b": 1, "a": [1, "2"]}}
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "string"}},
            "number": {"type": "number"},
            "flag": {"type": "boolean"},
            "kind": {"enum": ["x", "y"]},
            "object": {"$ref": "#/$defs/any"},
        },
        "$defs": {"any": {"type": "object"}},
    }
    columns = {name: name for name in value}
    stage = LLMStage(endpoint(quick_server), "REPLY<<{{ text }}>>", schema=schema, columns=columns)
    made = asked(stage, json.dumps(value), "{}")
    types = [str(made.data[name].type) for name in value]
    assert types == ["large_list<item: large_string>", "double", "bool", "large_string", "large_string"]
    first, second = made.to_pylist()
    assert {name: first[name] for name in value} == value and first["answer"] == value
    assert [second[name] for name in value] == [None] * 5


def test_a_pydantic_model_is_a_schema(quick_server):
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Rating", score=(int, ...), why=(str, "none"))
    stage = LLMStage(endpoint(quick_server), "REPLY<<{{ text }}>>", schema=model, columns={"score": "score"})
    made = asked(stage, '{"score": 3}', '{"score": "three"}')
    assert made.data["score"].to_pylist() == [3] and len(made.take_account().bad) == 1


def test_several_prompts_samples_examples_and_systems(quick_server):
    model = endpoint(quick_server)
    prompts = {"one": "REPLY<<1 {{ text }}>>", "two": "REPLY<<2 {{ text }}>>"}
    made = asked(LLMStage(model, prompts), "x", "y")
    assert made.data["one"].to_pylist() == ["1 x", "1 y"] and made.data["two"].to_pylist() == ["2 x", "2 y"]
    made = asked(LLMStage(model, "{{ text }}", samples=3, parameters={"seed": 7}), "x")
    answers = made.data["answer"].to_pylist()[0]
    assert len(set(answers)) == 3
    again = asked(LLMStage(model, "{{ text }}", samples=2, parameters={"seed": 8}), "x").data["answer"].to_pylist()[0]
    assert again == answers[1:], "the seed of the second sample is one higher"
    examples = [{"prompt": "REPLY<<an example>>", "answer": "yes"}]
    assert asked(LLMStage(model, "q", examples=examples, system="Be {{ text }}"), "x").num_items == 1
    made = asked(LLMStage(model, "REPLY<<{{ text }}>>", completion=True), "x")
    assert made.data["answer"].to_pylist() == ["x"]


def as_message(document: Mapping[str, Any]) -> str:
    if document["text"] == "bad":
        raise KeyError("nothing here")
    return f"REPLY<<{document['text'].upper()}>>"


async def in_two_turns(document: Mapping[str, Any], ask: Any) -> str:
    first = await ask(f"REPLY<<{document['text']}>>")
    talk = [{"role": "user", "content": "REPLY<<a||b>>"}, {"role": "assistant", "content": first}]
    second = await ask([*talk, {"role": "user", "content": "go on"}], max_tokens=9)
    return f"{first}, {second}"


def test_prompts_may_be_functions_and_conversations(quick_server):
    made = asked(LLMStage(endpoint(quick_server), as_message), "x", "bad", "y")
    account = made.take_account()
    assert made.data["answer"].to_pylist() == ["X", "Y"]
    assert [(record.position, record.reason) for record in account.bad] == [(1, "KeyError: 'nothing here'")]
    made = asked(LLMStage(endpoint(quick_server), in_two_turns), "x", "y")
    assert made.data["answer"].to_pylist() == ["x, b", "y, b"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}{{ text }}",
        "{{ text.__init__.__globals__ }}",
        "{% for x in range(10**9) %}{{ text }}{% endfor %}",
        "{{ cycler.__init__.__globals__.os.popen('touch /tmp/never').read() }}{{ text }}",
        "{{ 1 / 0 }}{{ text }}",
    ],
)
def test_templates_run_no_code(quick_server, template):
    made = asked(LLMStage(endpoint(quick_server), template), "x")
    (record,) = made.take_account().bad
    assert made.num_items == 0 and record.reason.startswith("the prompt cannot be made")
    assert not os.path.exists("/tmp/never")


def test_a_prompt_that_names_no_column_stops_the_run_at_planning(quick_server, tmp_path):
    source = write(tmp_path / "in", 3)
    stages = [
        JsonlReader(source, fields=["text"]),
        LLMStage(endpoint(quick_server), "{{ txt }}"),
        JsonlWriter(tmp_path),
    ]
    with pytest.raises(PlanError, match="txt"):
        Pipeline("p", stages=stages).run(LocalExecutor(QUIET))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": "{{ text"}, "is not a Jinja template"),
        ({"prompt": ""}, "must be a text that is not empty"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"schema": {"type": "objekt"}}, "is not a JSON schema"),
        ({"schema": 5}, "must be a JSON schema"),
        ({"schema": SCHEMA, "columns": {"a": "b"}}, "columns name 'b', which the schema does not have"),
        ({"output": None}, "the answers would go nowhere"),
        ({"completion": True, "system": "x"}, "has no chat"),
        ({"examples": [{"question": "x"}]}, "an example is"),
        ({"budget": {"tokens": 0}}, "must be a number above 0"),
        ({"cache_size": "much"}, "is not a size"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(arguments, words):
    with pytest.raises(ValueError, match=words):
        LLMStage(Endpoint("m", "http://127.0.0.1:1/v1"), **{"prompt": "{{ text }}", **arguments})


# Whole runs ------------------------------------------------------------------------------------------------------


def pipeline(source: Path, output: Path, server: Any, prompt: str = "Say {{ text }}", **options: Any) -> Pipeline:
    model = endpoint(server, **options.pop("model", {}))
    return Pipeline("p", stages=[JsonlReader(source), LLMStage(model, prompt, **options), JsonlWriter(output)])


def test_a_run_with_faults_answers_everything_and_a_repeated_one_asks_nothing(start_server, tmp_path):
    server = start_server("--faults", "0.2", "--median-ms", "5")
    source = write(tmp_path / "in", 300)
    result = pipeline(source, tmp_path / "out", server).run(LocalExecutor(QUIET))
    log = server.log()
    assert log["answers"] == 300 and log["repeated"] == 0 and log["calls"] == 300 + log["faults"]
    assert log["most_in_flight"] <= 32
    rows = [json.loads(line) for line in (tmp_path / "out/part-000000.jsonl").read_text().splitlines()]
    assert [row["n"] for row in rows] == list(range(300)) and len({row["answer"] for row in rows}) == 300
    counters = result.ledger.total().counters
    assert counters["LLMStage", "requests"] == 300 and "requests 300" in result.summary()
    assert counters["LLMStage", "attempts that failed"] + counters["LLMStage", "attempts refused by rate limits"] > 20
    before = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out/_gristmill/commits")
    (tmp_path / "out/_gristmill/run.json").unlink()
    for path in tmp_path.glob("out/part-*"):
        path.unlink()
    result = pipeline(source, tmp_path / "out", server).run(LocalExecutor(QUIET))
    assert contents(tmp_path / "out") == before and server.log()["calls"] == log["calls"]
    assert result.ledger.total().counters["LLMStage", "answers from the cache"] == 300


def test_bad_answers_are_in_the_quarantine_with_the_raw_answer(quick_server, tmp_path):
    source = write(tmp_path / "in", 40)
    prompt = 'REPLY<<{% if n % 10 == 3 %}no {{ n }}{% else %}{"score": 1}{% endif %}>>'
    result = pipeline(source, tmp_path / "out", quick_server, prompt, schema=SCHEMA).run(LocalExecutor(QUIET))
    found = quarantined(tmp_path / "out")
    assert [(entry["stage"], entry["raw"]) for entry in found] == [
        ("LLMStage", f"no {n}\nno {n}") for n in (3, 13, 23, 33)
    ]
    assert all("the answer is not JSON" in entry["reason"] for entry in found)
    total = result.ledger.total()
    assert (total.kept, sum(total.errored.values()), total.missing()) == (36, 4, 0)


def test_a_spent_budget_stops_the_run_and_a_larger_one_resumes_it(quick_server, tmp_path):
    source, prompt = write(tmp_path / "in", 200), f"{random.random()} {{{{ text }}}}"
    options: dict[str, Any] = {"parameters": {"max_tokens": 20}}
    with pytest.raises(PipelineError, match="the budget of 2,000 tokens is spent"):
        pipeline(source, tmp_path / "out", quick_server, prompt, budget={"tokens": 2000}, **options).run(
            LocalExecutor(QUIET)
        )
    cache = RequestCache(str(tmp_path / "out/_gristmill/llm"))
    state = cache.state()
    cache.close()
    assert 2000 - 60 < state.tokens <= 2200 and 30 < state.answers < 100
    calls = quick_server.log()["calls"]
    pipeline(source, tmp_path / "out", quick_server, prompt, budget={"tokens": 10**6}, **options).run(
        LocalExecutor(QUIET)
    )
    assert quick_server.log()["calls"] == calls + 200 - state.answers


def test_a_wrong_key_stops_the_run_and_shows_no_key(start_server, tmp_path, monkeypatch, capfd):
    key = "sk-Planted0Key1With2Digits"
    server = start_server("--key", "another", "--echo-key")
    monkeypatch.setenv("PLANTED_KEY", key)
    source = write(tmp_path / "in", 20)
    with pytest.raises(PipelineError, match="refuses all requests") as caught:
        pipeline(source, tmp_path / "out", server, model={"api_key_variable": "PLANTED_KEY"}).run(
            LocalExecutor({**QUIET, "view": "lines"})
        )
    assert "Planted" not in str(caught.value) and server.log()["unauthorized"] < 40
    assert "Planted" not in "".join(capfd.readouterr())


def test_without_its_variable_the_run_does_not_start(quick_server, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    source = write(tmp_path / "in", 2)
    with pytest.raises(PlanError, match="the environment variable NO_SUCH_KEY is not set"):
        pipeline(source, tmp_path / "out", quick_server, model={"api_key_variable": "NO_SUCH_KEY"}).run()


def test_a_key_is_nowhere(start_server, tmp_path, monkeypatch):
    """In no file of the output, report and metrics included, in no line of the terminal, and in no error."""
    key, header = "sk-Planted0Key1With2Digits", "hdr-Planted3Header4"
    server = start_server("--key", key, "--echo-key", "--faults", "0.3", "--structured", "ignore")
    source = write(tmp_path / "in", 60)
    (tmp_path / "run.py").write_text(f"""
import urllib.request
from gristmill import LocalExecutor, Pipeline
from gristmill.text import Endpoint, JsonlReader, JsonlWriter, LLMStage
keys = dict(api_key_variable="PLANTED_KEY", header_variables={{"X-Other": "PLANTED_HEADER"}})
model = Endpoint("m", {server.base_url!r}, concurrency=8, backoff_s=0.01, **keys)
prompt = "{{% if n == 5 %}}REFUSE{{% elif n == 6 %}}REPLY<<no>>{{% else %}}REPLY<<[1]>>{{% endif %}} {{{{ n }}}}"
stage = LLMStage(model, prompt, schema={{"type": "array"}})
pipeline = Pipeline("p", stages=[JsonlReader({str(source)!r}), stage, JsonlWriter({str(tmp_path / "out")!r})])
print(pipeline.describe() if hasattr(pipeline, "describe") else pipeline)
print(repr(model), stage)
result = pipeline.run(LocalExecutor({{"view": "lines"}}), report=True, metrics_port=0)
print(result.summary())
""")
    environment = {**os.environ, "PLANTED_KEY": key, "PLANTED_HEADER": header}
    ran = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(quarantined(tmp_path / "out")) == 2
    shown = (ran.stdout + ran.stderr).encode()
    files = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert any(path.suffix == ".sqlite" for path in files) and any(path.name == "report.html" for path in files)
    for planted in (b"Planted0Key1", b"Planted3Header4"):
        assert planted not in shown
        assert [path for path, data in files.items() if planted in data] == []


KILLED = """
import sys
from gristmill import LocalExecutor, Pipeline
from gristmill.text import Endpoint, JsonlReader, JsonlWriter, LLMStage
source, output, url = sys.argv[1:]
model = Endpoint("m", url, concurrency=16, backoff_s=0.01)
stages = [JsonlReader(source, blocksize=4000), LLMStage(model, "Say {{ text }}"), JsonlWriter(output)]
Pipeline("p", stages=stages).run(LocalExecutor({"view": "off", "num_cpus": 2}))
"""


def test_kills_of_the_driver_lose_no_answer(start_server, tmp_path):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    server = start_server("--faults", "0.1", "--median-ms", "20", "--seed", str(seed % 1000))
    source = write(tmp_path / "in", 400)
    script = [sys.executable, "-c", KILLED, str(source)]
    kills = 0
    while kills < 3:
        before = server.log()["answers"]
        process = subprocess.Popen([*script, str(tmp_path / "out"), server.base_url])
        wanted = before + number.randrange(20, 110)
        while process.poll() is None and server.log()["answers"] < wanted:
            time.sleep(0.01)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    subprocess.run([*script, str(tmp_path / "out"), server.base_url], check=True)
    log = server.log()
    assert kills >= 2 and log["answers"] >= 400
    assert log["calls"] <= 400 + log["faults"] + 16 * kills
    assert log["repeated"] <= 16 * kills
    calm = start_server("--median-ms", "1")
    subprocess.run([*script, str(tmp_path / "calm"), calm.base_url], check=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "calm")
    cache = RequestCache(str(tmp_path / "out/_gristmill/llm"))
    assert cache.state().answers == 400
    cache.close()


def test_a_stage_reads_only_the_columns_that_its_prompts_name():
    stage = LLMStage(Endpoint("m", "http://127.0.0.1:1/v1"), "{{ a }} {% if b %}{{ c.d }}{% endif %}", system="{{ e }}")
    assert stage.columns_needed() == ["a", "b", "c", "e"] and stage.outputs() == (["data"], ["answer"])
    assert LLMStage(Endpoint("m", "http://127.0.0.1:1/v1"), as_message).columns_needed() is None


def test_one_worker_serves_all_requests(quick_server):
    stage = LLMStage(endpoint(quick_server), "{{ text }}")
    assert stage.num_workers() == 1 and asyncio.iscoroutinefunction(stage.process) and stage.max_in_flight > 1


def test_a_pipeline_in_yaml_asks_and_stays_the_same_when_it_is_written_again(quick_server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-Planted0Key1")
    source = write(tmp_path / "in", 5)
    (tmp_path / "p.yaml").write_text(f"""
stages:
  - JsonlReader: {{file_paths: {source}}}
  - LLMStage:
      model: {{Endpoint: {{model: m, base_url: "{quick_server.base_url}", api_key_variable: SOME_KEY, concurrency: 4}}}}
      prompt: "REPLY<<{{{{ text }}}}>>"
      budget: {{tokens: 100000}}
  - LLMClassifier:
      model: {{Endpoint: {{model: m, server: {{command: [serve, "{{port}}"]}}}}}}
      labels: [a, b]
  - JsonlWriter: {{path: {tmp_path / "out"}}}
""")
    loaded = Pipeline.from_yaml(tmp_path / "p.yaml")
    again = loaded.to_yaml()
    assert "SOME_KEY" in again and "Planted" not in again
    (tmp_path / "again.yaml").write_text(again)
    assert Pipeline.from_yaml(tmp_path / "again.yaml").to_yaml() == again
    stages = [stage for stage in loaded.stages if stage.name != "LLMClassifier"]
    Pipeline("p", stages=stages).run(LocalExecutor(QUIET))
    rows = [json.loads(line) for line in (tmp_path / "out/part-000000.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in rows] == [row["text"] for row in rows]
