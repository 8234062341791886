"""Videos are found in folders and manifests, and each has a row, or a place in quarantine."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("av")

from tests.videos import corpus
from tests.videos.conftest import video  # noqa: F401  # a fixture

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import InputChanged, OutputChanged, PipelineFailed, PlanError
from gristmill.pipeline import Pipeline
from gristmill.pipeline.explain import explain
from gristmill.pipeline.planner import flatten
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.protocols import own_tasks
from gristmill.stages.text.io import JsonlWriter
from gristmill.stages.video.clipping import FixedStrideExtractorStage
from gristmill.stages.video.filtering import MotionVectorDecodeStage
from gristmill.stages.video.io.reader import VideoReader, VideoReaderStage
from gristmill.tasks import VideoTask


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def curate(out: Path, reader: VideoReader, *stages: ProcessingStage) -> Pipeline:
    return Pipeline("videos", stages=[reader, *stages, JsonlWriter(str(out))])


def run(pipeline: Pipeline, workers: int = 1, **how: Any) -> Any:
    return pipeline.run(LocalExecutor(config={"view": "off", "num_cpus": workers}), **how)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


def read(reader: VideoReader) -> list[str]:
    """The names of the videos that a reader reads, in this process."""
    files, probing = flatten([reader])
    tasks = [task for block in own_tasks(files) or () for task in files.process(block)]
    account = sum((task.account.read for task in tasks), Counter())
    found = [name for task in tasks for name in probing.process(task).data.column("video_id").to_pylist()]
    assert account.total() == len(found)
    return found


def bad(out: Path) -> dict[str, str]:
    found = [json.loads(line) for path in (out / "quarantine").glob("*") for line in path.read_text().splitlines()]
    return {f"{os.path.basename(one['file'])}#{one['position']}": one["reason"] for one in found}


def test_a_folder_with_good_and_bad_videos(tmp_path, video):  # noqa: F811
    folder = tmp_path / "in"
    put(folder, "a.mp4", video(25, audio="aac"))
    put(folder, "deep/b.webm", video(25, "libvpx-vp9", container="webm"))
    put(folder, "deep/c.MOV", video(5, turned=90))
    put(folder, "empty.mp4", b"")
    put(folder, "text.mkv", b"no video" * 100)
    put(folder, "cut.mp4", video(25)[:-200])
    put(folder, "sound.mp4", corpus.sound_only())
    put(folder, "huge.avi", corpus.huge())
    put(folder, "notes.txt", b"not read")
    os.symlink("nowhere", folder / "gone.mp4")
    result = run(curate(tmp_path / "out", VideoReader(str(folder))))
    found = {row["video_id"]: row for row in rows(tmp_path / "out")}
    assert sorted(found) == ["a.mp4", "deep/b.webm", "deep/c.MOV"]
    assert found["a.mp4"] == {
        **{"video": f"{folder}/a.mp4", "video_id": "a.mp4", "width": 128, "height": 64, "rotation": 0, "fps": 25.0},
        **{"frames": 25, "duration_s": 1.0, "video_codec": "h264", "pixel_format": "yuv420p", "audio_codec": "aac"},
        "video_bytes": len(video(25, audio="aac")),
    }
    assert (found["deep/c.MOV"]["width"], found["deep/c.MOV"]["rotation"]) == (128, 270)
    assert bad(tmp_path / "out") == {
        "empty.mp4#0": "empty",
        "text.mkv#0": "not a video of a known format",
        "cut.mp4#0": "truncated",
        "sound.mp4#0": "no video stream",
        "huge.avi#0": "too many pixels",
    }
    total = result.ledger.total()
    assert (total.documents, total.kept, total.errored.total()) == (8, 3, 5) and not result.ledger.problems
    assert all(account.balances for account in result.ledger.files.values())
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_named_files_and_globs(tmp_path, video):  # noqa: F811
    for name in ("a.mp4", "b.mp4", "c.webm", "d"):
        put(tmp_path, f"in/{name}", video(5))
    for paths, names in [
        (f"{tmp_path}/in/*.mp4", ["a.mp4", "b.mp4"]),
        ([f"{tmp_path}/in/d", f"{tmp_path}/in/c.webm"], ["c.webm", "d"]),
        (Path(tmp_path, "in"), ["a.mp4", "b.mp4", "c.webm"]),
    ]:
        assert sorted(read(VideoReader(paths))) == names


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_manifest_names_videos_and_has_more_fields(tmp_path, video, kind):  # noqa: F811
    put(tmp_path, "clips/a.mp4", video(25))
    put(tmp_path, "b.mp4", video(5))
    given = [
        {"path": "clips/a.mp4", "title": "first", "width": "broad", "id": "one"},
        {"path": f"{tmp_path}/b.mp4", "title": "second", "width": "narrow", "id": "two"},
        {"path": "none.mp4", "title": "third", "width": "?", "id": "three"},
        {"path": None, "title": "fourth", "width": "?", "id": "four"},
        {"path": "ftp://host/x.mp4", "title": "fifth", "width": "?", "id": "five"},
    ]
    if kind == "jsonl":
        put(tmp_path, "m.jsonl", b"".join(json.dumps(one).encode() + b"\n" for one in given))
    else:
        pq.write_table(pa.Table.from_pylist(given), tmp_path / "m.parquet")
    result = run(curate(tmp_path / "out", VideoReader(f"{tmp_path}/m.{kind}")))
    found = {row["video_id"]: row for row in rows(tmp_path / "out")}
    assert sorted(found) == ["one", "two"]
    assert found["one"]["video"] == f"{tmp_path}/clips/a.mp4" and found["one"]["title"] == "first"
    assert (found["one"]["width"], found["one"]["original_width"]) == (128, "broad")
    assert sorted(bad(tmp_path / "out").values()) == [
        "an address that is not read",
        "no path or URL",
        "the file does not exist (ENOENT)",
    ]
    total = result.ledger.total()
    assert (total.documents, total.kept, total.errored.total()) == (5, 2, 3) and not result.ledger.problems
    some = VideoReader(f"{tmp_path}/m.{kind}", path_field="path", fields=["title"])
    run(curate(tmp_path / "some", some))
    assert "original_width" not in rows(tmp_path / "some")[0] and rows(tmp_path / "some")[0]["title"] == "first"


def test_a_limit_and_a_sample(tmp_path, video):  # noqa: F811
    for n in range(20):
        put(tmp_path, f"in/{n:02}.mp4", video(1))
    first = VideoReader(str(tmp_path / "in"), limit=3)
    assert read(first) == ["00.mp4", "01.mp4", "02.mp4"]
    assert read(VideoReaderStage(input_video_path=str(tmp_path / "in"), video_limit=3)) == read(first)
    some = read(VideoReader(str(tmp_path / "in"), sample=0.4))
    assert 2 <= len(some) <= 14
    assert set(some) <= set(read(VideoReader(str(tmp_path / "in"), sample=0.8)))


def test_wrong_input_is_an_error_before_the_run(tmp_path, video):  # noqa: F811
    put(tmp_path, "mixed/a.mp4", video(1))
    put(tmp_path, "mixed/m.jsonl", b'{"path": "a.mp4"}\n')
    with pytest.raises(PlanError, match="1 video files and 1 JSONL manifests"):
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "mixed"))))
    put(tmp_path, "m/m.jsonl", b'{"text": 1}\n')
    with pytest.raises(PlanError, match="no field of paths or URLs"):
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "m"))))
    with pytest.raises(PlanError, match="no field 'film' for path_field"):
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "m"), path_field="film")))
    for wrong in (
        {"kind": "shards"},
        {"max_pixels": 0},
        {"limit": 0},
        {"input_video_path": "a"},
        {"video_limit": 2, "limit": 1},
    ):
        with pytest.raises(ValueError):
            VideoReader("b", **wrong)


def test_new_videos_are_appended_and_a_changed_folder_is_refused(tmp_path, video):  # noqa: F811
    put(tmp_path, "in/one/a.mp4", video(5))
    run(curate(tmp_path / "out", VideoReader(str(tmp_path / "in"))))
    put(tmp_path, "in/two/b.mp4", video(5))
    with pytest.raises(OutputChanged):
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "in"))))
    result = run(curate(tmp_path / "out", VideoReader(str(tmp_path / "in"))), append=True)
    assert result.ledger.total().kept == 2
    put(tmp_path, "in/one/c.mp4", video(5))
    with pytest.raises(OutputChanged, match="in/one/"):
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "in"))), append=True)


class Changing(ProcessingStage[VideoTask, VideoTask]):
    """Writes to the file of a video."""

    def process(self, task: VideoTask) -> VideoTask:
        for path in task.data.column("video").to_pylist():
            with open(path, "ab") as file:
                file.write(b"more")
        return task


def test_a_video_that_changes_while_it_is_used_ends_the_run(tmp_path, video):  # noqa: F811
    from gristmill.stages.video.clipping import ClipTranscodingStage

    put(tmp_path, "in/a.mp4", video(25))
    with pytest.raises(PipelineFailed) as error:
        run(curate(tmp_path / "out", VideoReader(str(tmp_path / "in")), Changing(), ClipTranscodingStage()))
    assert isinstance(error.value, InputChanged) and "a.mp4 changed" in str(error.value)


def test_a_video_is_explained_by_its_id_and_that_of_a_clip(tmp_path, video):  # noqa: F811
    put(tmp_path, "in/a.mp4", video(50))
    stages = flatten(
        curate(tmp_path / "out", VideoReader(str(tmp_path / "in")), FixedStrideExtractorStage(1, 1, 1)).stages
    )
    for ident in (f"{tmp_path}/in/a.mp4#0", f"{tmp_path}/in/a.mp4#0/1", "a.mp4"):
        found = explain(stages, ident)
        assert found.document == f"{tmp_path}/in/a.mp4#0" and found.fields["video_id"] == "a.mp4"


@pytest.mark.parametrize("ident", ["{folder}/a.mp4#0/1", "a.mp4@1.000-2.000"])
def test_the_clip_with_this_id_is_followed_after_its_video_was_split(tmp_path, video, ident):  # noqa: F811
    put(tmp_path, "in/a.mp4", video(50))
    reader, split = VideoReader(str(tmp_path / "in")), FixedStrideExtractorStage(1, 1, 1)
    stages = flatten(curate(tmp_path / "out", reader, split, MotionVectorDecodeStage(clip_field="video")).stages)
    _, made, measured = explain(stages, ident.format(folder=tmp_path / "in")).stages
    assert made.verdict == "became 2 documents"
    assert made.changes["start_s"] == (None, 1.0) and made.changes["clip_id"] == (None, "a.mp4@1.000-2.000")
    assert "a.mp4#0/1" in made.notes[0] and measured.changes


def test_a_video_in_quarantine_is_explained(tmp_path):
    put(tmp_path, "in/page.mp4", b"<html>")
    pipeline = curate(tmp_path / "out", VideoReader(str(tmp_path / "in")), FixedStrideExtractorStage(1, 1, 1))
    found = explain(flatten(pipeline.stages), "page.mp4")
    assert [one.verdict for one in found.stages] == ["dropped: in quarantine, not a video of a known format"]
    assert not found.kept


def test_a_pipeline_in_yaml(tmp_path, video, capsys):  # noqa: F811
    for n in range(4):
        put(tmp_path, f"in/{n}.mp4", video(25))
    text = f"""
name: videos
stages:
  - VideoReader: {{file_paths: {tmp_path}/in, max_pixels: 100000}}
  - FixedStrideExtractorStage: {{clip_len_s: 0.5, clip_stride_s: 0.5, min_clip_length_s: 0.2}}
  - ClipTranscodingStage: {{crf: 40, preset: ultrafast}}
  - ParquetWriter: {{path: {tmp_path}/out}}
"""
    put(tmp_path, "p.yaml", text.encode())
    assert main(["run", str(tmp_path / "p.yaml"), "--dry-run"]) == 0
    assert "VideoReader" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "p.yaml"), "--limit", "2", "--view", "off"]) == 0
    found = [row for path in (tmp_path / "out").glob("part-*") for row in pq.read_table(path).to_pylist()]
    assert len(found) == 4 and all(row["clip"][4:8] == b"ftyp" for row in found)


class Ranges(http.server.BaseHTTPRequestHandler):
    """Serves parts of files, to those who know the key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        path, _, query = self.path.partition("?")
        data = server.files.get(path) if "token=hush" in query else None
        if data is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin, stop = 0, len(data)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, stop = int(first), min(len(data), int(last) + 1 if last else len(data))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{stop - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - begin))
        self.end_headers()
        if self.command == "GET":
            server.sent += stop - begin
            self.wfile.write(data[begin:stop])

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Any:
    pytest.importorskip("aiohttp")
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    server.files, server.sent = {}, 0
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_parts_of_videos_on_a_server_are_fetched_and_keys_stay_secret(tmp_path, server, video):  # noqa: F811
    from gristmill.stages.video.clipping import ClipTranscodingStage

    small = corpus.indexed_first(video(100))
    server.files["/a.mp4"] = small + (30 << 20).to_bytes(4, "big") + b"free" + bytes((30 << 20) - 8)
    lines = [{"url": f"{server.url}/{name}?token=hush", "n": n} for n, name in enumerate(("a.mp4", "none.mp4"))]
    put(tmp_path, "m.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    reader = VideoReader(f"{tmp_path}/m.jsonl", fields=["n"])
    result = run(curate(tmp_path / "out", reader, FixedStrideExtractorStage(1, 1, 1), ClipTranscodingStage(), Sizes()))
    found = rows(tmp_path / "out")
    assert [row["start_s"] for row in found] == [0, 1, 2, 3] and all(row["size"] > 500 for row in found)
    assert {row["video"] for row in found} == {f"{server.url}/a.mp4"} and {row["n"] for row in found} == {0}
    assert list(bad(tmp_path / "out").values()) == ["the file does not exist (ENOENT)"]
    assert not result.ledger.problems and server.sent < 12 << 20
    texts = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(b"hush" in text for text in texts)


class Scan(ProcessingStage[VideoTask, VideoTask]):
    """Looks for a key in all files of a run."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, task: VideoTask) -> VideoTask:
        files = [path for path in Path(self.folder).rglob("*") if path.is_file()]
        assert any(path.suffix == ".docs" for path in files), files
        assert not any(b"hush" in path.read_bytes() for path in files)
        return task


def test_keys_are_not_in_the_files_of_a_barrier(tmp_path, server, video):  # noqa: F811
    server.files["/a.mp4"] = video(25)
    put(tmp_path, "m.jsonl", json.dumps({"url": f"{server.url}/a.mp4?token=hush", "n": 1}).encode() + b"\n")
    reader = VideoReader(f"{tmp_path}/m.jsonl", fields=["n"])
    stages = [ExactDeduplication(text_field="video_id"), Scan(str(tmp_path / "out"))]
    run(curate(tmp_path / "out", reader, FixedStrideExtractorStage(1, 1, 1), *stages))
    assert [row["clip_id"] for row in rows(tmp_path / "out")] == [f"{server.url}/a.mp4@0.000-1.000"]


class Sizes(ProcessingStage[VideoTask, VideoTask]):
    """Replaces the clips by their sizes."""

    def process(self, task: VideoTask) -> VideoTask:
        sizes = [len(clip) for clip in task.data.column("clip").to_pylist()]
        task.data = task.data.drop_columns(["clip"]).append_column("size", pa.array(sizes, pa.int64()))
        return task
