"""The same on S3, against a real server: ranges, listings, uploads that show when they are complete."""

from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

boto3 = pytest.importorskip("boto3")
pytest.importorskip("s3fs")
server_module = pytest.importorskip("moto.server")

from gristmill.backends.local import LocalExecutor  # noqa: E402  # as below
from gristmill.errors import InputChanged, PlanError  # noqa: E402  # after the check of what is installed
from gristmill.pipeline import Pipeline  # noqa: E402  # as above
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter  # noqa: E402

LINES = b"".join(b'{"text": "document %d %s"}\n' % (i, b"x" * 500) for i in range(2000))


@pytest.fixture(scope="module")
def endpoint():
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Bucket:
    def __init__(self, endpoint):
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
        self.options = {"storage_options": {"key": "test", "secret": "test", "endpoint_url": endpoint}}
        self.client.create_bucket(Bucket="corpus")

    def put(self, name, data):
        self.client.put_object(Bucket="corpus", Key=name, Body=data)
        return f"s3://corpus/{name}"

    def keys(self, prefix):
        found = self.client.list_objects_v2(Bucket="corpus", Prefix=prefix).get("Contents", [])
        return {item["Key"]: self.client.get_object(Bucket="corpus", Key=item["Key"])["Body"].read() for item in found}


@pytest.fixture(scope="module")
def bucket(endpoint):
    return Bucket(endpoint)


def run(reader, writer):
    linked = reader.linked([], [writer])
    writer = writer.linked([reader], [])
    for block in reader.source():
        result = linked.process(block)
        several = hasattr(result, "__next__")
        for n, batch in enumerate(result if several else [result]):
            batch.task_id = f"{block.task_id}.{n}" if several else block.task_id
            yield batch, writer.process(batch)


def test_ranges_are_read_and_files_written(bucket):
    bucket.put("in/a.jsonl", LINES)
    bucket.put("in/_skipped.jsonl", LINES)
    bucket.put("in/deep/b.jsonl.gz", gzip.compress(LINES))
    reader = JsonlReader("s3://corpus/in", blocksize=300_000, read_kwargs=bucket.options)
    writer = JsonlWriter("s3://corpus/out", write_kwargs=bucket.options)
    done = list(run(reader, writer))
    written = bucket.keys("out/")
    assert len(written) == len(done) > 6
    assert b"".join(written[key] for key in sorted(written)) == LINES + LINES
    assert [f"s3://corpus/{key}" for key in sorted(written)] == sorted(path for _, t in done for path in t.data)
    first, _ = done[0]
    assert first.data["_gristmill_id"][0].as_py() == "s3://corpus/in/a.jsonl#0"


def test_parquet_there_and_back(bucket):
    bucket.put("pin/a.jsonl", LINES)
    reader = JsonlReader("s3://corpus/pin/*.jsonl", read_kwargs=bucket.options)
    list(run(reader, ParquetWriter("s3://corpus/pq", write_kwargs=bucket.options)))
    back = ParquetReader("s3://corpus/pq", blocksize=200_000, read_kwargs=bucket.options)
    list(run(back, JsonlWriter("s3://corpus/back", write_kwargs=bucket.options)))
    written = bucket.keys("back/")
    assert b"".join(written[key] for key in sorted(written)) == LINES.replace(b'": "', b'":"')


def test_many_files_are_found_by_listing_not_one_by_one(bucket, monkeypatch):
    import s3fs

    names = [bucket.put(f"many/{i:03d}.jsonl", b'{"text": "a"}\n') for i in range(60)]
    calls = []
    original = s3fs.S3FileSystem._call_s3

    async def counted(self, method, *args, **kwargs):
        calls.append(method)
        return await original(self, method, *args, **kwargs)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    for paths in ("s3://corpus/many", "s3://corpus/many/*.jsonl", names):
        calls.clear()
        assert len(JsonlReader(paths, read_kwargs=bucket.options).source()) == 60
        assert len(calls) <= 5, calls


@pytest.mark.parametrize("path", ["s3://corpus/nothing", "s3://corpus/nothing/*.jsonl", "s3://nowhere/x.jsonl"])
def test_what_is_not_there_is_an_error_before_anything_starts(bucket, path):
    with pytest.raises(PlanError):
        JsonlReader(path, read_kwargs=bucket.options).source()


def test_a_large_upload_shows_when_it_is_complete(bucket, monkeypatch):
    import s3fs

    writer = JsonlWriter("s3://corpus/large", write_kwargs=bucket.options)
    data = io.BytesIO(b"0123456789" * 10_500_000).getvalue()
    original = s3fs.S3FileSystem._call_s3
    seen = []

    async def failing(self, method, *args, **kwargs):
        seen.append(method)
        if method == "upload_part" and seen.count("upload_part") > 1:
            raise OSError("the line is cut")
        return await original(self, method, *args, **kwargs)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", failing)
    with pytest.raises(OSError, match="cut"):
        writer.folder.write("part", data)
    assert "create_multipart_upload" in seen
    assert bucket.keys("large/") == {}
    assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket="corpus")  # what was begun is taken back
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", original)
    writer.folder.write("part", data)
    assert bucket.keys("large/") == {"large/part": data}


@pytest.mark.parametrize("data", [LINES[: len(LINES) // 2], LINES.replace(b"document 7 ", b"document 8 "), None, b""])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_an_object_that_changes_after_planning_is_an_error_of_its_blocks(bucket, name, data):
    packed = gzip.compress if name.endswith(".gz") else bytes
    path = bucket.put(f"changing/{name}", packed(LINES))
    other = bucket.put("changing/b.jsonl", LINES)
    reader = JsonlReader([path, other], blocksize=300_000, read_kwargs=bucket.options)
    blocks = reader.source()
    assert reader.changed_inputs() == []
    if data is None:
        bucket.client.delete_object(Bucket="corpus", Key=f"changing/{name}")
    else:
        bucket.put(f"changing/{name}", packed(data))
    for block in blocks:
        if block.data[0].path == path:
            with pytest.raises(InputChanged, match=f"{name} changed after the run was planned"):
                list(reader.process(block))
        else:
            assert reader.process(block).num_items
    [line] = reader.changed_inputs()
    assert path in line and ("no longer exists" if data is None else "now") in line


def test_parquet_that_changes_after_planning_is_an_error(bucket):
    def table(texts):
        sink = io.BytesIO()
        pq.write_table(pa.table({"text": texts}), sink)
        return sink.getvalue()

    path = bucket.put("changing/a.parquet", table(["one", "two"]))
    reader = ParquetReader(path, read_kwargs=bucket.options)
    [block] = reader.source()
    bucket.put("changing/a.parquet", table(["one", "six"]))
    with pytest.raises(InputChanged, match="written again"):
        reader.process(block)


def test_an_object_with_two_colons_in_its_name_is_no_chain(bucket):
    path = bucket.put("colons/a::b.jsonl", b'{"text": "right"}\n')
    bucket.put("colons/a", b'{"text": "wrong"}\n')
    for paths in (path, "s3://corpus/colons/"):
        reader = JsonlReader(paths, read_kwargs=bucket.options)
        [block] = reader.source()
        assert reader.process(block).data["text"].to_pylist() == ["right"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"no_such": 1}, "no option 'no_such'"),
        ({"client_kwargs": {"no_such": 1}}, "no option 'no_such'"),
        ({"profile": "no such profile"}, "no such profile"),
        ({"client_kwargs": 3}, "cannot be read"),
        ({"endpoint_url": "nonsense"}, "nonsense"),
    ],
)
@pytest.mark.parametrize("path", ["s3://corpus/in/a.jsonl", "s3://corpus/in", "s3://corpus/in/*.jsonl"])
def test_wrong_options_are_plain_errors(bucket, path, options, words):
    given = {"storage_options": {**bucket.options["storage_options"], **options}}
    with pytest.raises(PlanError, match=words) as caught:
        JsonlReader(path, read_kwargs=given).source()
    assert "s3://corpus/in" in str(caught.value)


@pytest.mark.parametrize(("options", "words"), [({"no_such": 1}, "no option 'no_such'"), ({"profile": "?"}, "profile")])
def test_wrong_options_of_an_output_are_plain_errors(bucket, tmp_path, options, words):
    (tmp_path / "a.jsonl").write_bytes(LINES[:5000])
    given = {"storage_options": {**bucket.options["storage_options"], **options}}
    stages = [JsonlReader(str(tmp_path)), JsonlWriter("s3://corpus/wrong", write_kwargs=given)]
    with pytest.raises(PlanError, match=words) as caught:
        Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off"}))
    assert "s3://corpus/wrong" in str(caught.value)


def test_a_storage_that_is_not_known_is_a_plain_error():
    with pytest.raises(PlanError, match="nowhere://out' cannot be used"):
        _ = JsonlWriter("nowhere://out").folder
