"""Images on S3 and on web servers, from real servers on this machine."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("PIL")
pytest.importorskip("aiohttp")

from tests.stages.image.io.pictures import bad, batches, by_id, check_balance, picture, put, rows, samples, shard

from gristmill.backends.local import LocalExecutor
from gristmill.errors import InputChanged
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.image.io.reader import ImageReader, fetching
from gristmill.stages.text.io import ParquetWriter


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        with server.lock:
            server.asked.append((self.command, self.path))
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
            troubles = server.troubles.get(self.path, [])
            status = troubles.pop(0) if troubles else 200
        try:
            self.answer(status)
        finally:
            with server.lock:
                server.under_way -= 1

    def answer(self, status):
        data = self.server.files.get(self.path)
        if data is None or status != 200:
            self.send_response(404 if data is None else status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if callable(data):
            data(self)
            return
        time.sleep(self.server.delay)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.lock, server.asked, server.files, server.troubles, server.delay = threading.Lock(), [], {}, {}, 0.0
    server.under_way = server.most_under_way = 0
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(fetching, "FIRST_WAIT_S", 0.01)


def urls(tmp_path, addresses: list[str], name: str = "m.jsonl") -> str:
    return put(tmp_path, name, b"".join(json.dumps({"url": one}).encode() + b"\n" for one in addresses))


def test_urls_of_a_manifest_are_fetched_a_few_at_a_time_and_in_order(tmp_path, server):
    server.delay = 0.01
    server.files = {f"/{n}.png?size=2": picture(n) for n in range(200)}
    path = urls(tmp_path, [f"{server.url}/{n}.png?size=2" for n in range(200)])
    found = batches(ImageReader(path))
    check_balance(found)
    assert [row["image"] for row in rows(found)] == [picture(n) for n in range(200)]
    assert 1 < server.most_under_way <= fetching.AT_ONCE
    assert len(server.asked) == 200  # no request but one for each image


def test_a_server_that_fails_for_a_moment_is_asked_again(tmp_path, server):
    server.files = {f"/{n}.png": picture(n) for n in range(6)}
    server.troubles = {"/1.png": [503], "/2.png": [500, 429], "/3.png": [500] * 9, "/4.png": [403] * 9}
    path = urls(tmp_path, [f"{server.url}/{n}.png" for n in range(7)])
    [batch] = batches(ImageReader(path))
    assert [row["image"] for row in rows([batch])] == [picture(n) for n in (0, 1, 2, 5)]
    reasons = ["the server failed", "the server refused with 403", "the file does not exist (ENOENT)"]
    assert [reason for _, reason in bad([batch])] == reasons
    assert [record.is_failure for record in batch.account.bad] == [True, False, False]
    asked = [path for _, path in server.asked]
    assert [asked.count(f"/{n}.png") for n in range(7)] == [1, 2, 3, 3, 1, 1, 1]


def test_what_is_stored_for_a_barrier_is_not_fetched_twice(tmp_path, server):
    server.files = {f"/{n}.png": picture(n) for n in range(20)}
    lines = [{"url": f"{server.url}/{n}.png", "text": f"caption {n // 2}"} for n in range(20)]
    path = put(tmp_path, "in/m.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    stages = [ImageReader(path), ExactDeduplication(text_field="caption"), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": 1}))
    assert result.ledger.total().kept == 10 and len(server.asked) == 20


def test_an_answer_without_end_is_cut_off(tmp_path, server, monkeypatch):
    monkeypatch.setattr("gristmill.stages.image.io.reader.tables.MOST_BYTES", 6 << 20)
    monkeypatch.setattr(fetching.fetched, "__defaults__", (6 << 20,))
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        piece = b"x" * (1 << 20)
        try:
            while len(sent) < 1000:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent.append(1)
        except OSError:
            handler.close_connection = True

    large = picture(1, "BMP", size=(1300, 1300))
    assert len(large) > fetching.SMALL_BYTES
    server.files = {"/a.png": endless, "/b.bmp": large, "/c.png": picture(2)}
    path = urls(tmp_path, [f"{server.url}/{name}" for name in ("a.png", "b.bmp", "c.png")])
    found = batches(ImageReader(path))
    assert [row["image"] for row in rows(found)] == [large, picture(2)]
    assert [reason for _, reason in bad(found)] == ["too many bytes"] and len(sent) < 100


def test_a_server_that_says_nothing_costs_its_images(tmp_path, server, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.2)
    done = threading.Event()
    server.files = {"/a.png": lambda handler: done.wait(20), "/b.png": picture(1)}
    path = urls(tmp_path, [f"{server.url}/a.png", f"{server.url}/b.png"])
    [batch] = batches(ImageReader(path))
    done.set()
    assert [reason for _, reason in bad([batch])] == ["no answer in time (ETIMEDOUT)"]
    assert batch.account.bad[0].is_failure and len(rows([batch])) == 1


def test_a_manifest_on_the_web_names_files_beside_it_and_none_of_this_machine(tmp_path, server):
    local = put(tmp_path, "secret.png", picture(9))
    addresses = [
        "sub/1.png",
        local,
        f"file://{local}",
        f"{server.url}/2.png",
        "../../etc/passwd",
        "simplecache::file:///x",
    ]
    server.files = {"/data/sub/1.png": picture(1), "/2.png": picture(2)}
    server.files["/data/m.jsonl"] = b"".join(json.dumps({"path": one}).encode() + b"\n" for one in addresses)
    found = batches(ImageReader(f"{server.url}/data/m.jsonl"))
    assert [row["image"] for row in rows(found)] == [picture(1), picture(2)]
    here = "a file of this machine in a table from elsewhere"
    assert [reason for _, reason in bad(found)] == [
        here,
        here,
        "the file does not exist (ENOENT)",
        "an address that is not read",
    ]


def test_secrets_in_urls_stay_out_of_names_and_reasons(tmp_path, server):
    server.files = {"/a.png?token=hush": picture(1)}
    path = urls(tmp_path, [f"{server.url}/a.png?token=hush", f"{server.url}/b.png?token=hush"])
    found = batches(ImageReader(path, fields=[]))
    assert [row["image_id"] for row in rows(found)] == [f"{server.url}/a.png"]
    assert "hush" not in str(bad(found))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_a_shard_on_the_web_is_a_stream(tmp_path, server, name):
    data = shard(samples(60))
    local = by_id(batches(ImageReader(put(tmp_path, "a.tar", data))))
    server.files = {f"/{name}": gzip.compress(data) if name.endswith("gz") else data}
    found = batches(ImageReader(f"{server.url}/{name}", blocksize=4000))
    check_balance(found)
    assert len(found) > 3
    there = {ident.rpartition("#")[2]: row for ident, row in by_id(found).items()}
    assert {key: row["image"] for key, row in there.items()} == {
        k.rpartition("#")[2]: r["image"] for k, r in local.items()
    }


def test_images_that_are_named_on_the_web(server):
    server.files = {f"/{n}.png": picture(n) for n in range(3)}
    found = batches(ImageReader([f"{server.url}/{n}.png" for n in range(3)]))
    assert [row["image"] for row in rows(found)] == [picture(n) for n in range(3)]


@pytest.fixture(scope="module")
def bucket():
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("s3fs")
    module = pytest.importorskip("moto.server")
    server = module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="images")
    client.options = {"storage_options": {"key": "test", "secret": "test", "endpoint_url": endpoint}}
    yield client
    server.stop()


def upload(bucket, name: str, data: bytes) -> None:
    bucket.put_object(Bucket="images", Key=name, Body=data)


def test_a_folder_on_s3(bucket):
    for n in range(40):
        upload(bucket, f"folder/{n % 3}/{n}.png", picture(n) if n != 7 else b"")
        upload(bucket, f"folder/{n % 3}/{n}.txt", b"caption %d" % n)
    for path in ("s3://images/folder", "s3://images/folder/*/*.png"):
        reader = ImageReader(path, read_kwargs=bucket.options)
        found = batches(reader)
        check_balance(found)
        made = {row["image_id"]: row for row in by_id(found).values()}
        assert len(made) == 39 and made["1/4.png"]["image"] == picture(4) and made["1/4.png"]["caption"] == "caption 4"
        assert bad(found) == [("s3://images/folder/1/7.png#0", "empty")]
        assert reader.changed_inputs() == []
    blocks = reader.source()
    upload(bucket, "folder/1/4.png", picture(5) + b"longer")
    with pytest.raises(InputChanged, match=r"folder/1/4\.png changed"):
        [reader.process(block) for block in blocks]
    [line] = reader.changed_inputs()
    assert "folder/1/4.png" in line


def test_shards_tables_and_manifests_on_s3(bucket, tmp_path):
    upload(bucket, "shards/a.tar", shard(samples(60)))
    found = batches(ImageReader("s3://images/shards", blocksize=5000, read_kwargs=bucket.options))
    local = batches(ImageReader(put(tmp_path, "a.tar", shard(samples(60)))))
    assert [row["image"] for row in rows(found)] == [row["image"] for row in rows(local)] and len(found) > 3
    sink = io.BytesIO()
    pq.write_table(pa.table({"path": [f"../shards/{n}.png" for n in range(3)], "text": ["a", "b", "c"]}), sink)
    upload(bucket, "tables/a.parquet", sink.getvalue())
    for n in (0, 2):
        upload(bucket, f"shards/{n}.png", picture(n))
    upload(bucket, "m/m.jsonl", b'{"path": "s3://images/shards/0.png"}\n{"path": "/etc/passwd"}\n')
    found = batches(ImageReader("s3://images/tables/a.parquet", read_kwargs=bucket.options))
    assert [(row["image"], row["caption"]) for row in rows(found)] == [(picture(0), "a"), (picture(2), "c")]
    assert [reason for _, reason in bad(found)] == ["the file does not exist (ENOENT)"]
    found = batches(ImageReader("s3://images/m", read_kwargs=bucket.options))
    assert len(rows(found)) == len(bad(found)) == 1
