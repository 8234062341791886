"""Credentials of storages are not written beside the output, and new ones do not make another run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gristmill.pipeline import Pipeline
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.text.io import JsonlReader, JsonlWriter


class Mine(JsonlReader):
    """Not registered: described by its attributes."""


class MineToo(JsonlWriter):
    pass


def options(secret: str, url: str = "http://here") -> dict:
    client = {"endpoint_url": url, "aws_session_token": secret}
    return {"storage_options": {"key": secret, "secret": secret, "endpoint_url": url, "client_kwargs": client}}


def pipeline(folder: Path, secret: str, reader: type = JsonlReader, writer: type = JsonlWriter) -> Pipeline:
    stages = [
        reader(str(folder / "in.jsonl"), read_kwargs=options(secret)),
        writer(str(folder / "out"), write_kwargs=options(secret)),
    ]
    return Pipeline("p", stages=stages)


@pytest.mark.parametrize(("reader", "writer"), [(JsonlReader, JsonlWriter), (Mine, MineToo)])
def test_credentials_stay_out_of_the_output_and_may_change(tmp_path, reader, writer):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    assert pipeline(tmp_path, "hush-1", reader, writer).run().ok
    text = (tmp_path / "out" / "_gristmill" / "run.json").read_text()
    assert "hush" not in text and "http://here" in text
    assert pipeline(tmp_path, "hush-2", reader, writer).run().ok  # resumes, rather than refusing


def test_the_address_of_a_storage_counts():
    def described(url: str) -> dict:
        return describe_stage(JsonlReader("in/", read_kwargs=options("hush", url)))

    assert described("http://here") == described("http://here") != described("http://there")


def test_yaml_that_the_user_asks_for_is_whole_and_that_of_the_output_can_be_loaded(tmp_path):
    made = pipeline(tmp_path, "hush-1")
    assert made.to_yaml().count("hush-1") == 6
    remembered = made._as_yaml()
    assert remembered is not None and "hush" not in remembered
    again = Pipeline.from_yaml(remembered)
    assert json.dumps([describe_stage(x) for x in again.stages]) == json.dumps([describe_stage(x) for x in made.stages])


def test_a_local_path_that_looks_like_a_query_stays_as_it_is(tmp_path):
    for name in ("a?token=one.jsonl", "a?token=two.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
    one, two = (JsonlReader(str(tmp_path / f"a?token={word}.jsonl")) for word in ("one", "two"))
    assert describe_stage(one)["arguments"] != describe_stage(two)["arguments"]
    output = tmp_path / "out"
    Pipeline("odd name", stages=[one, JsonlWriter(str(output))]).run()
    assert "a?token=one.jsonl" in json.loads((output / "_gristmill" / "run.json").read_text())["pipeline"]
