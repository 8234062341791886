"""The report of a run that writes to an S3 server, with and without the right to write it."""

from __future__ import annotations

from typing import Any

from tests.ledger.test_s3 import endpoint  # noqa: F401  # a fixture
from tests.report.runs import write_documents

from gristmill import Pipeline, fast_json
from gristmill.report.changes import compared
from gristmill.report.place import PAGE, RECORD
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder


def test_record_and_page_are_beside_an_output_on_s3(endpoint, tmp_path, monkeypatch, capsys):  # noqa: F811
    options = {"endpoint_url": endpoint, "key": "test", "secret": "hush-hush"}
    out = Folder("s3://bucket/out", options)
    out.fs.mkdir("bucket")
    texts = ["word " * (10 if i % 3 else 40) for i in range(60)]
    write_documents(tmp_path / "in", [{"id": f"d{i}", "text": text} for i, text in enumerate(texts)])

    def run(least: int, name: str):
        writer = JsonlWriter(f"s3://bucket/{name}", write_kwargs={"storage_options": options})
        stages = [JsonlReader(str(tmp_path / "in")), ScoreFilter(WordCountFilter(least)), writer]
        return Pipeline("p", stages=stages).run(report=True)

    result = run(20, "out")
    assert result.report == "s3://bucket/out/_gristmill/report.html"
    data = fast_json.loads(out.read(RECORD))
    assert (data["state"], data["documents"]["kept"]) == ("finished", 20)
    assert data["excluded"]["rules"][0]["dropped"]["read"] == 40
    page = out.read(PAGE)
    assert b"20 kept + 40 dropped" in page
    assert b"hush-hush" not in page + out.read(RECORD)

    run(5, "other")
    type(out.fs).clear_instance_cache()  # a file system without credentials that another test has opened
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    moved = compared("s3://bucket/out", "s3://bucket/other")["sides"]
    assert moved["dropped_in_a"]["documents"] == 40
    assert moved["dropped_in_b"]["documents"] == 0

    write = Folder.write

    def refuse(self: Folder, name: str, *arguments: Any, **options: Any) -> str:
        if "report" in name:
            raise PermissionError("AccessDenied")
        return write(self, name, *arguments, **options)

    monkeypatch.setattr(Folder, "write", refuse)
    capsys.readouterr()
    assert run(6, "closed").report is None
    assert capsys.readouterr().err.count("no report of this run: ") == 1
