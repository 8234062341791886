"""JSON without orjson is the same."""

import json
import subprocess
import sys
from pathlib import Path

from gristmill import fast_json

CODE = """
import sys
sys.modules["orjson"] = None
from gristmill import fast_json
texts = [b'{"a": [1, 2.5, "\\\\u00e9"], "b": null}', b'{"x": NaN}', b'"\\\\ud800"', b'"\\xff"', b'1e999']
texts += [b'[1,', b'"\\\\ud83d\\\\ude00"']
for text in texts:
    try:
        print(fast_json.dumps(fast_json.loads(text)).decode())
    except fast_json.JSONDecodeError:
        print("refused")
print(fast_json.dumps({"a": float("nan"), "b": "é"}).decode())
"""


def test_the_standard_library_reads_and_refuses_the_same():
    with_orjson = CODE.replace('sys.modules["orjson"] = None\n', "")
    both = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for code in (CODE, with_orjson)
    ]
    assert both[0].stdout == both[1].stdout and both[0].stdout.count("refused") == 5, both[0].stderr
    assert "orjson" in fast_json.loads.__module__ or fast_json.loads.__module__ is None


def test_a_pipeline_runs_without_orjson(tmp_path: Path):
    lines = [json.dumps({"id": i, "text": f"some words of é {i}"}) for i in range(20)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "{broken"]) + "\n")
    code = f"""
import sys
sys.modules["orjson"] = None
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
stages = [JsonlReader({str(tmp_path / "in.jsonl")!r}), ScoreFilter(WordCountFilter(min_words=3), score_field="n"),
          JsonlWriter({str(tmp_path / "out")!r})]
print(Pipeline("x", stages=stages).run(LocalExecutor(config={{"view": "off"}})).ledger.total().kept)
"""
    # Workers are other processes: they too must not find it.
    (tmp_path / "sitecustomize.py").write_text('import sys\nsys.modules["orjson"] = None\n')
    env = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "20", done.stderr
