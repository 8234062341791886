"""Signed URLs and passwords in URLs, over real servers: no byte that is written or printed holds the secret."""

from __future__ import annotations

import base64
import gzip
import http.server
import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("aiohttp")

SECRET = "HUSH"
LINES = [json.dumps({"text": f"document {i % 700} of the mill by the river"}) for i in range(2000)]
RUN = "import sys; from gristmill.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, url = self.server, urlsplit(self.path)
        server.count += 1
        given = parse_qs(url.query).get("X-Amz-Signature", [""])[0]
        password = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        allowed = given.startswith(SECRET) or SECRET in password
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        broken = server.broken_after is not None and server.count > server.broken_after
        broken |= asked is not None and int(asked[1]) > server.broken_from
        data = server.files.get(url.path, b"")
        status = 403 if not allowed else 404 if url.path not in server.files else server.status if broken else 0
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        part = data[int(asked[1]) : int(asked[2] or len(data)) + 1] if asked else data
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    plain = "\n".join([*LINES, "{broken"]).encode()
    server.files = {
        "/a.jsonl": plain,
        "/a.jsonl.gz": gzip.compress(plain),
        "/cut.jsonl.gz": gzip.compress(plain)[:-900],
    }
    server.broken_after, server.broken_from, server.status, server.count = None, 1 << 30, 500, 0
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def signed(server, name: str, secret: str = SECRET) -> str:
    signature = f"X-Amz-Date=1{secret}&X-Amz-Credential={secret}&X-Amz-Signature={secret}"
    return f"http://127.0.0.1:{server.server_port}/{name}?{signature}"


def with_password(server, name: str) -> str:
    return f"http://me:{SECRET}@127.0.0.1:{server.server_port}/{name}"


def write_pipeline(folder: Path, url: str, extra: str = "", options: str = "") -> None:
    (folder / "p.yaml").write_text(
        f"name: p\nstages:\n- JsonlReader: {{file_paths: '{url}', blocksize: 20000{options}}}\n{extra}"
        f"- JsonlWriter: {{path: {folder}/out}}\n"
    )


FUZZY = "- ScoreFilter: {filter_obj: [{WordCountFilter: {min_words: 2}}]}\n- FuzzyDeduplication: {}\n"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    check_silence(folder, ended.stdout, ended.stderr)
    return ended


def check_silence(folder: Path, *printed: str) -> None:
    """No file but the user's own pipeline, and nothing that was printed, holds the secret."""
    for text in printed:
        assert SECRET not in text, text
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "p.yaml":
            assert SECRET.encode() not in path.read_bytes(), path
            assert SECRET not in str(path)


@pytest.mark.parametrize("extra", ["", FUZZY], ids=["filter", "fuzzy"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "cut.jsonl.gz"])
def test_a_signed_url_is_read_and_leaves_no_secret(tmp_path, server, name, extra):
    write_pipeline(tmp_path, signed(server, name), extra, options=", text_field: text")
    ended = run(tmp_path, "run", "p.yaml", "--cpus", "2")
    assert ended.returncode == 0, ended.stderr
    place = f"http://127.0.0.1:{server.server_port}/{name}"
    assert place in (tmp_path / "out/_gristmill/run.json").read_text()
    assert [path for path in (tmp_path / "out/quarantine").rglob("*") if place.encode() in path.read_bytes()]
    if extra:
        assert [path for path in (tmp_path / "out").glob("duplicates*/*") if path.is_file()]


def test_a_run_is_resumed_with_a_new_signature(tmp_path, server):
    write_pipeline(tmp_path, signed(server, "a.jsonl"))
    server.broken_from = 50_000
    ended = run(tmp_path, "run", "p.yaml", "--cpus", "2")
    assert ended.returncode == 1 and "500" in ended.stderr
    done = set((tmp_path / "out").glob("part-*"))
    assert done, ended.stderr
    before = {path: path.stat().st_mtime_ns for path in done}
    server.broken_from = 1 << 30
    write_pipeline(tmp_path, signed(server, "a.jsonl", SECRET + "2"))
    ended = run(tmp_path, "run", "p.yaml", "--cpus", "2")
    assert ended.returncode == 0, ended.stderr
    assert {path: path.stat().st_mtime_ns for path in done} == before
    kept = "".join(path.read_text() for path in sorted((tmp_path / "out").glob("part-*")))
    assert kept.splitlines() == LINES


@pytest.mark.parametrize("status", [403, 404, 500])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 6])
def test_a_server_that_fails_reveals_no_secret(tmp_path, server, status, after):
    write_pipeline(tmp_path, signed(server, "a.jsonl"), FUZZY)
    server.broken_after, server.status = after, status
    ended = run(tmp_path, "run", "p.yaml", "--cpus", "1")
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr.split("where:")[0]


def test_wrong_urls_reveal_no_secret(tmp_path, server):
    for url in (
        signed(server, "missing.jsonl"),
        signed(server, "a.jsonl").replace(f"Signature={SECRET}", f"Signature=x{SECRET}"),
        f"http://127.0.0.1:1/a.jsonl?sig={SECRET}",
        f"nothing://me:{SECRET}@h/a.jsonl",
        f"sftp://me:{SECRET}@127.0.0.1:1/a.jsonl",
    ):
        write_pipeline(tmp_path, url)
        for command in (["run", "p.yaml"], ["run", "--dry-run", "p.yaml"], ["plan", "p.yaml"]):
            ended = run(tmp_path, *command)
            assert "Traceback" not in ended.stderr, ended.stderr
        assert run(tmp_path, "run", "p.yaml").returncode, url


def test_passwords_in_urls(tmp_path, server):
    write_pipeline(tmp_path, with_password(server, "a.jsonl"))
    saved = ["--save-profile=profile.json", "--save-load=load.json"]
    ended = run(tmp_path, "run", "p.yaml", "--cpus", "1", *saved)
    assert ended.returncode == 0, ended.stderr
    assert f'"http://127.0.0.1:{server.server_port}/a.jsonl"' in (tmp_path / "out/_gristmill/run.json").read_text()


def test_explain_and_the_list_of_steps_show_no_secret(tmp_path, server):
    write_pipeline(tmp_path, signed(server, "a.jsonl"), FUZZY)
    assert run(tmp_path, "run", "p.yaml", "--cpus", "1").returncode == 0
    ident = f"http://127.0.0.1:{server.server_port}/a.jsonl#0"
    ended = run(tmp_path, "explain", "out", ident, "--pipeline", "p.yaml")
    assert ended.returncode == 0 and "document 0" in ended.stdout, ended.stderr
    ended = run(tmp_path, "explain", str(tmp_path / "out"), ident)  # the signature is not beside the output
    assert ended.returncode and "Traceback" not in ended.stderr


def test_the_python_api_and_event_logs_reveal_no_secret(tmp_path, server):
    script = f"""
from gristmill import Pipeline
from gristmill.backends.local import LocalExecutor
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader, JsonlWriter

class Fails(ProcessingStage):
    def process(self, task):
        raise ValueError("cannot fetch {signed(server, "b.jsonl")}: 403")

reader = JsonlReader({signed(server, "a.jsonl")!r}, blocksize=20_000)
print(reader.source()[0], reader.versions())
executor = LocalExecutor(config={{"event_log": "events.log", "num_cpus": 1}})
pipeline = Pipeline("p", stages=[reader, Fails(), JsonlWriter("out")])
print(pipeline.describe())
pipeline.run(executor)
"""
    (tmp_path / "p.yaml").write_text(script)  # a name that is not searched
    ended = subprocess.run(
        [sys.executable, "p.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert ended.returncode == 1 and "cannot fetch" in ended.stderr
    assert (tmp_path / "events.log").stat().st_size
    check_silence(tmp_path, ended.stdout, ended.stderr)


def test_two_urls_that_differ_in_the_secret_alone_are_refused(tmp_path, server):
    from gristmill.errors import PlanError
    from gristmill.stages.text.io import JsonlReader

    urls = [signed(server, "a.jsonl", SECRET + end) for end in ("1", "2")]
    with pytest.raises(PlanError, match="once secrets are left out") as caught:
        JsonlReader(urls).source()
    assert SECRET not in str(caught.value)
    assert JsonlReader([urls[0], urls[0]], blocksize="1MB").source()


def test_parquet_and_samples_do_not_depend_on_the_signature(server):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gristmill.stages.text.io import JsonlReader, ParquetReader

    file = io.BytesIO()
    pq.write_table(pa.table({"text": [f"document {i}" for i in range(3000)]}), file, row_group_size=500)
    server.files["/a.parquet"] = file.getvalue()
    for kind, name in ((ParquetReader, "a.parquet"), (JsonlReader, "a.jsonl"), (JsonlReader, "a.jsonl.gz")):
        found = []
        for secret in (SECRET + "1", SECRET + "2"):
            reader = kind(signed(server, name, secret), sample=0.2, blocksize=5000)
            linked = reader.linked([], [])
            read = [linked.process(block) for block in reader.source()]
            batches = [batch for one in read for batch in ([one] if hasattr(one, "data") else one)]
            found.append([batch.data.to_pydict() for batch in batches])
            assert SECRET not in repr([batch.account for batch in batches]) + repr(reader.versions())
        assert found[0] == found[1] and SECRET not in repr(found)


def test_keys_of_an_object_storage(tmp_path):
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"aws_access_key_id": SECRET, "aws_secret_access_key": SECRET}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **keys)
        client.create_bucket(Bucket="corpus")
        client.put_object(Bucket="corpus", Key="a.jsonl", Body="\n".join(LINES).encode())
        storage = f"{{key: {SECRET}, secret: {SECRET}, token: {SECRET}, endpoint_url: 'http://{host}:{port}'}}"
        options = f", read_kwargs: {{storage_options: {storage}}}"
        write_pipeline(tmp_path, "s3://corpus/a.jsonl", FUZZY, options)
        ended = run(tmp_path, "run", "p.yaml", "--cpus", "1")
        assert ended.returncode == 0, ended.stderr
        for wrong in ("s3://corpus/b.jsonl", "s3://nowhere/a.jsonl"):
            write_pipeline(tmp_path, wrong, FUZZY, options)
            assert run(tmp_path, "run", "p.yaml", "--cpus", "1").returncode
    finally:
        server.stop()
