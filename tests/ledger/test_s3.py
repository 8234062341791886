"""A run on a real S3 server, killed and finished."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gristmill.storage import Folder

SERVER = """
import time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
time.sleep(1e6)
"""

JOB = """
import sys, time
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

endpoint, output = sys.argv[1:]
storage = {"storage_options": {"endpoint_url": endpoint, "key": "test", "secret": "test"}}

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    time.sleep(0.1)
    return task

stages = [
    JsonlReader("s3://corpus/in/", blocksize="8KB", read_kwargs=storage),
    ScoreFilter(WordCountFilter(min_words=50)),
    slow,
    JsonlWriter(output, write_kwargs=storage),
]
result = Pipeline("s3", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": 2}))
print(result.ledger.resumed)
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()


def test_a_run_on_s3_that_is_killed_is_finished_by_the_next(endpoint, corpus, tmp_path):
    options = {"endpoint_url": endpoint, "key": "test", "secret": "test"}
    source = Folder("s3://corpus/in", options)
    source.fs.mkdir("corpus")
    for path in corpus.iterdir():
        source.write(path.name, path.read_bytes())
    job = tmp_path / "job.py"
    job.write_text(JOB)

    def command(output: str) -> list[str]:
        return [sys.executable, str(job), endpoint, output]

    subprocess.run(command("s3://corpus/whole"), check=True, stdout=subprocess.DEVNULL)
    killed = Folder("s3://corpus/killed", options)
    process = subprocess.Popen(command("s3://corpus/killed"), stdout=subprocess.DEVNULL)
    while process.poll() is None and not killed.names("_gristmill/commits"):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run(command("s3://corpus/killed"), check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) > 0
    assert contents(killed) == contents(Folder("s3://corpus/whole", options))


def contents(folder: Folder) -> dict[str, bytes]:
    names = [f"{sub}{name}" for sub in ("", "excluded/", "quarantine/") for name in folder.names(sub.rstrip("/"))]
    found = {name: folder.read(name) for name in names}
    found["ledger"] = json.dumps(json.loads(folder.read("_gristmill/ledger.json"))["total"]).encode()
    return found
