"""Repositories on the Hugging Face hub: a server on this machine that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.models import small

COMMIT = "1" * 40
TOKEN = "hf_of_a_friend"


class Hub(BaseHTTPRequestHandler):
    """Has the repositories someone/model and someone/gated, for which the token is needed."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, has_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0].removeprefix("/api/models")
        owner, name, *rest = path.strip("/").split("/")
        if (owner, name) not in (("someone", "model"), ("someone", "gated")):
            return self.refuse(404, "RepoNotFound")
        if name == "gated" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(403, "GatedRepo")
        if len(rest) > 1 and rest[1] not in ("main", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if self.path.startswith("/api/"):
            return self.send(self.listing(f"{owner}/{name}", rest[0] if rest else ""), has_body)
        file = self.folder / "/".join(rest[2:])
        if not file.is_file():
            return self.refuse(404, "EntryNotFound")
        self.send(file.read_bytes(), has_body)

    def listing(self, repository: str, what: str) -> bytes:
        files = sorted(self.folder.iterdir())
        if what == "tree":
            found = [{"type": "file", "path": one.name, "size": one.stat().st_size, "oid": "0" * 40} for one in files]
            return json.dumps(found).encode()
        siblings = [{"rfilename": one.name} for one in files]
        return json.dumps({"_id": "1", "id": repository, "sha": COMMIT, "siblings": siblings}).encode()

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, content: bytes, has_body: bool) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if has_body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    Hub.folder, Hub.asked = tmp_path / "repository", []
    small.save_classifier("bert", Hub.folder, 1)
    (Hub.folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (Hub.folder / "modeling_mine.py").write_text("code")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


PLANNED = """
import json, sys
from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import ModelSpec
for name, token, act in json.loads(sys.argv[1]):
    checkpoint = Checkpoint(name, cache_dir=sys.argv[2], token=token)
    try:
        ModelSpec(checkpoint).check()
        checkpoint.check_tokenizer()
        files = sorted(path.name for path in (checkpoint.fetch() if act == "fetch" else checkpoint.folder()).iterdir())
    except ModelError as error:
        print(json.dumps(str(error)))
    else:
        print(json.dumps(files))
"""


def planned(
    cache: Path, *wanted: tuple[str, str | bool, str], endpoint: str, **environment: str
) -> list[str | list[str]]:
    """Plan with repositories or their files, given as (name, token, "fetch" or "folder"), in another process."""
    settings = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        **environment,
    }
    command = [sys.executable, "-c", PLANNED, json.dumps(wanted), str(cache)]
    ran = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_repositories_are_planned_fetched_and_then_used_offline(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Planning downloads no weights, `fetch` no pickles and no code. Each error says how to get the model."""
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    cache = tmp_path / "cache"
    wanted = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    never, no_weights, missing, revision, gated = planned(
        cache,
        ("someone/model", False, "folder"),
        ("someone/model", False, "folder"),
        ("someone/nothing", False, "fetch"),
        ("someone/model@never", False, "fetch"),
        ("someone/gated", False, "fetch"),
        endpoint=endpoint,
    )
    assert Hub.asked
    assert not any("safetensors" in asked or asked.endswith((".bin", ".py")) for asked in Hub.asked), (
        "planning is cheap"
    )
    assert never == no_weights
    assert "there is no such repository on the Hugging Face hub, or it is private" in missing
    assert "has no revision 'never'" in revision
    assert (
        "is gated, and you have no access to it.\n    ask for access at https://huggingface.co/someone/gated" in gated
    )
    assert "hf auth login" in gated
    mine, with_token = planned(
        cache, ("someone/model", False, "fetch"), ("someone/gated", TOKEN, "fetch"), endpoint=endpoint
    )
    assert mine == with_token == wanted

    Hub.asked.clear()
    offline, of_commit, not_there = planned(
        cache,
        ("someone/model", False, "fetch"),
        (f"someone/model@{COMMIT}", False, "fetch"),
        ("someone/other", False, "fetch"),
        endpoint=endpoint,
        HF_HUB_OFFLINE="1",
    )
    assert offline == of_commit == wanted
    assert "HF_HUB_OFFLINE is set" in not_there
    assert f"hf download someone/other --cache-dir {cache}" in not_there
    assert Hub.asked == []
    (unreachable,) = planned(cache, ("someone/other", False, "fetch"), endpoint="http://127.0.0.1:9")
    assert "someone/other" in unreachable
    assert "hf download someone/other" in unreachable
