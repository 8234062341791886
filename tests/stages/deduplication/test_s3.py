"""Deduplication on a real S3 server: what is written is what is written on a disk, and little is fetched for it."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from tests.stages.deduplication.corpora import execute, lines_of, records_of, write_jsonl, written

from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.spool import in_arrow, read_arrow
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder

server_module = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def options():
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test"}
    Folder("s3://dedup-corpus", found).fs.mkdir("dedup-corpus")
    yield found
    server.stop()


def put(folder: Folder, local) -> None:
    rng = random.Random(4)
    words = [f"word{n}" for n in range(400)]
    texts = [" ".join(rng.choices(words, k=60)) + "\nsame line\n" for _ in range(60)]
    texts += [*(text.upper() for text in texts[:20]), *texts[:9]]
    documents = [{"n": n, "text": text} for n, text in enumerate(texts)]
    for n in range(3):
        write_jsonl(local / f"{n}.jsonl", documents[n::3])
        folder.write(f"{n}.jsonl", (local / f"{n}.jsonl").read_bytes())


@pytest.mark.parametrize("front", [[], [ScoreFilter(WordCountFilter(min_words=5))]], ids=["read again", "put aside"])
@pytest.mark.parametrize(
    "stage", [ExactDeduplication(), FuzzyDeduplication(verify=True), FuzzyDeduplication(), LineDeduplication()], ids=str
)
def test_files_and_records_on_s3_are_those_on_a_disk(tmp_path, options, stage, front, request):
    url = f"s3://dedup-corpus/{abs(hash(request.node.name))}"
    source, output = Folder(f"{url}/in", options), Folder(f"{url}/out", options)
    put(source, tmp_path / "in")
    storage = {"storage_options": options}
    execute(JsonlReader(str(tmp_path / "in")), *front, stage, JsonlWriter(str(tmp_path / "out")))
    execute(JsonlReader(source.url, read_kwargs=storage), *front, stage, JsonlWriter(output.url, write_kwargs=storage))
    for path in output.fs.find(f"{output.root}/"):
        name = path.removeprefix(f"{output.root}/")
        if not name.startswith("_gristmill"):
            copy = tmp_path / "copy" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(output.read(name))
    assert set(written(tmp_path / "copy")) == set(written(tmp_path / "out"))
    assert lines_of(tmp_path / "copy") == lines_of(tmp_path / "out") != []

    def plain(folder, root):
        return json.loads(json.dumps(records_of(folder)).replace(root, ""))

    assert plain(tmp_path / "copy", source.url) == plain(tmp_path / "out", str(tmp_path / "in")) != []


def test_of_a_table_on_s3_no_more_is_fetched_than_the_columns_that_are_wanted(options, monkeypatch):
    table = pa.table({f"c{n}": pa.array(range(n, n + 50_000)) for n in range(20)})
    folder = Folder("s3://dedup-corpus/columns", options)
    data = in_arrow(table.replace_schema_metadata({"a": "b"}))
    folder.write("x.arrow", data)
    fetched = []
    fetch = s3fs.core.S3File._fetch_range

    def counting(self, start, end):
        fetched.append(end - start)
        return fetch(self, start, end)

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", counting)
    found = read_arrow(folder, "x.arrow", ["c7", "c3"])
    assert found.equals(table.select(["c7", "c3"])) and 0 < sum(fetched) < data.size / 5
    assert read_arrow(folder, "x.arrow", []).schema.metadata == {b"a": b"b"} and sum(fetched) < data.size / 4
    assert read_arrow(folder, "x.arrow").equals(table)
