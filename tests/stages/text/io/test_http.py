"""Files on the web, from servers that send parts of files and servers that do not."""

from __future__ import annotations

import gzip
import http.server
import re
import threading
import zlib

import pytest

pytest.importorskip("aiohttp")

from gristmill.errors import InputChanged
from gristmill.stages.text.io import JsonlReader
from gristmill.stages.text.io.reader.files import RangeFile

LINES = [b'{"text": "document %d"}\n' % i for i in range(3000)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        data, mode = self.server.files[self.path], self.server.mode
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        self.server.asked.append(self.headers.get("Range"))
        part = data
        if asked and mode == "ranges":
            part = data[int(asked[1]) : int(asked[2] or len(data)) + 1]
        self.send_response(200 if part is data else 206)
        if self.server.etags:
            self.send_header("ETag", f'"{zlib.crc32(data):x}"')
        if mode == "unknown size":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
            return
        self.send_header("Content-Length", str(len(part)))
        if part is not data:
            self.send_header("Content-Range", f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture(params=["ranges", "no ranges", "unknown size"])
def server(request):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.mode = request.param
    server.asked = []
    server.etags = False
    server.files = {"/a.jsonl": b"".join(LINES), "/a.jsonl.gz": gzip.compress(b"".join(LINES))}
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("how", [{"blocksize": 10_000}, {"blocksize": "1MB"}, {"files_per_partition": 1}, {}])
def test_every_document_is_read_once_whatever_the_server_can(work, server, name, how):
    batches = work.batches(JsonlReader(f"{server.url}/{name}", **how))
    texts = [text for batch in batches for text in batch.data["text"].to_pylist()]
    assert texts == [f"document {i}" for i in range(3000)]
    assert not any(batch.account.bad for batch in batches)
    if how.get("blocksize") == 10_000:
        assert len(batches) > 1


def test_only_servers_that_send_parts_have_files_cut(work, server):
    blocks = JsonlReader(f"{server.url}/a.jsonl", blocksize=10_000).source()
    assert (len(blocks) > 1) == (server.mode == "ranges")


def test_more_than_was_asked_for_is_an_error(server):
    with RangeFile(f"{server.url}/a.jsonl", {}) as file:
        if server.mode == "ranges":
            assert file.read(5, 9) == LINES[0][5:9]
        else:
            with pytest.raises(OSError, match="does not send parts"):
                file.read(5, 9)


def test_batches_do_not_depend_on_how_a_stream_arrives(work, server):
    server.files["/b.jsonl"] = b"".join(LINES) * 10
    reader = JsonlReader(f"{server.url}/b.jsonl", blocksize=100_000)
    first, second = ([batch.num_items for batch in work.batches(reader)] for _ in range(2))
    assert first == second and sum(first) == 30_000


@pytest.mark.parametrize("name", ["/a.jsonl", "/a.jsonl.gz"])
def test_a_file_that_changes_on_its_server_is_an_error_of_its_blocks(server, name):
    server.etags = True
    reader = JsonlReader(server.url + name, blocksize=10_000)
    blocks = reader.source()
    assert reader.changed_inputs() == []
    packed = gzip.compress if name.endswith(".gz") else bytes
    server.files[name] = packed(b"".join(LINES).replace(b"document 7", b"document 8"))
    for block in blocks:
        with pytest.raises(InputChanged, match=r"etag was|and now has"):
            list(reader.process(block))
    assert len(reader.changed_inputs()) == 1


def test_a_file_of_another_size_is_noticed_where_the_server_sends_no_etag(server):
    if server.mode == "unknown size":
        return  # then nothing shows that it changed
    reader = JsonlReader(f"{server.url}/a.jsonl", blocksize=10_000)
    block = reader.source()[0]
    server.files["/a.jsonl"] = b"".join(LINES[:2000])
    with pytest.raises(InputChanged, match="and now has"):
        list(reader.process(block))
