"""An output on an S3 server: what is missing at the end or later is found there too."""

from __future__ import annotations

import pytest
from tests.ledger.test_s3 import endpoint  # noqa: F401  # a fixture
from tests.stages.deduplication.corpora import execute

from gristmill.errors import OutputChanged, OutputDamaged, PipelineError
from gristmill.ledger.commits import CommitLog
from gristmill.pipeline import documents
from gristmill.pipeline.verify import Verified, _Check
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder


def names(folder: Folder) -> dict[str, int]:
    places = ("", "excluded", "quarantine", "duplicates", "_gristmill/commits")
    return {f"{place}/{name}": size for place in places for name, size in folder.sizes(place).items()}


def problems(folder: Folder) -> list[str]:
    found = Verified(folder.url)
    _Check(CommitLog(folder), found).all()
    return found.problems


def test_an_output_on_s3_is_verified_resumed_and_compared_at_the_end(endpoint, corpus, monkeypatch):  # noqa: F811
    options = {"endpoint_url": endpoint, "key": "test", "secret": "test"}
    out = Folder("s3://bucket/out", options)
    out.fs.mkdir("bucket")

    def run(url: str = "s3://bucket/out", barrier: bool = False, **how):
        words = ScoreFilter(WordCountFilter(min_words=50))
        writer = JsonlWriter(url, write_kwargs={"storage_options": options})
        middle = [words, ExactDeduplication()] if barrier else [words]
        return execute(JsonlReader(str(corpus), blocksize="30KB"), *middle, writer, **how)

    run()
    assert problems(out) == []
    whole = names(out)
    data = bytearray(out.read("part-000001.jsonl"))
    data[100] ^= 1
    out.write("part-000001.jsonl", data)
    out.write("part-2024-notes.txt", b"mine")
    assert ["part-000001.jsonl" in line for line in problems(out)] == [True]
    result = run()
    assert result.ledger.resumed == len(result.ledger.blocks) - 1 and problems(out) == []
    assert set(names(out)) - set(whole) >= {"/part-2024-notes.txt"}

    check_written = documents.check_written

    def spoil(plan, result, ignore):
        plan.ledger.log.folder.remove("part-000002.jsonl")
        return check_written(plan, result, ignore)

    monkeypatch.setattr("gristmill.pipeline.pipeline.check_written", spoil)
    with pytest.raises(PipelineError, match=r"part-000002\.jsonl is missing"):
        run("s3://bucket/spoilt")
    monkeypatch.undo()

    cut = Folder("s3://bucket/cut", options)
    run("s3://bucket/cut", barrier=True)
    before = names(cut)
    for name in cut.names("_gristmill/commits"):
        cut.remove(f"_gristmill/commits/{name}")
    with pytest.raises(OutputDamaged, match="fresh"):
        run("s3://bucket/cut", barrier=True)
    assert {**names(cut)} == {name: size for name, size in before.items() if "commits" not in name}
    with pytest.raises(OutputChanged):
        run("s3://bucket/cut")
