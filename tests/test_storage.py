"""Folders on this machine, known by their path alone or by fsspec."""

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from fsspec.core import url_to_fs

from gristmill.errors import PlanError
from gristmill.storage import AT_ONCE_BYTES, Folder, local_path, storage_of


@pytest.mark.parametrize("end", ["", "/", "/a", "/a/", "/a b", "/a/../b"])
def test_a_plain_path_is_what_fsspec_makes_of_it(tmp_path, end):
    path = f"{tmp_path}{end}"
    assert local_path(path) == path
    assert Folder(path).root == url_to_fs(path)[1]
    assert Folder(path).full_path("x") == f"{url_to_fs(path)[1]}/x"


ODD_NAMES = ["a::b", "x*y[1]", "q?r#s%20t", "s3:/x", "memory::y", "~z"]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [*(("", name) for name in [*ODD_NAMES, "odd://n::s3://x"]), *(("file://", n) for n in ODD_NAMES)],
)
def test_local_paths_are_paths_whatever_characters_they_hold(tmp_path, name, prefix):
    assert local_path(f"{prefix}{tmp_path}/{name}") == f"{tmp_path}/{name}"
    folder = Folder(f"{prefix}{tmp_path}/{name}")
    folder.write("b.txt", b"1")
    assert (tmp_path / name / "b.txt").read_bytes() == folder.read("b.txt") == b"1"


def test_relative_paths_are_those_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of/someone")
    assert local_path("a::b.jsonl") == f"{tmp_path}/a::b.jsonl"
    assert local_path("./out") == f"{tmp_path}/out"
    assert local_path("~/out") == "/home/of/someone/out"


@pytest.mark.parametrize("url", ["s3://b/a", "zip://a::/tmp/x.zip", "simplecache::s3://b/a", "memory://x::y"])
def test_urls_are_left_to_fsspec(url):
    assert local_path(url) is None


def test_only_urls_with_a_protocol_are_chained():
    storage, path = storage_of("memory://folder/a::b.jsonl", {})
    assert path.lstrip("/") == "folder/a::b.jsonl" and "memory" in storage.protocol
    storage, _ = storage_of("simplecache::memory://folder/a", {})
    assert "simplecache" in storage.protocol


def test_a_folder_with_a_nul_in_its_name_is_a_plain_error():
    with pytest.raises(PlanError, match="NUL"):
        Folder("/tmp/a\0b")


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_files_are_written_read_found_and_removed_either_way(tmp_path, prefix):
    folder = Folder(f"{prefix}{tmp_path}/out")
    folder.write("a/b.txt", b"1")
    assert (folder.read("a/b.txt"), folder.names("a"), folder.exists("c")) == (b"1", ["b.txt"], False)
    folder.remove("a")
    assert not folder.exists("a/b.txt")


@pytest.mark.parametrize("size", [0, 1, AT_ONCE_BYTES, AT_ONCE_BYTES + 1, 3 * AT_ONCE_BYTES + 7])
def test_what_is_written_in_pieces_is_whole(tmp_path, size):
    content = os.urandom(size)
    folder = Folder(tmp_path)
    for n, data in enumerate([content, bytearray(content), pa.py_buffer(content), np.frombuffer(content, np.uint8)]):
        folder.write(f"{n}", data)
        assert folder.read(f"{n}") == content


def test_a_file_that_goes_while_a_folder_is_listed_takes_no_other_with_it(tmp_path, monkeypatch):
    class Gone:
        name = "gone"

        def is_file(self):
            return True

        def stat(self):
            raise FileNotFoundError

    def with_one_more(path):
        return closing(iter([*scandir(path), Gone()]))

    @contextmanager
    def closing(entries):
        yield entries

    scandir = os.scandir
    (tmp_path / "a").write_bytes(b"12")
    monkeypatch.setattr(os, "scandir", with_one_more)
    assert Folder(tmp_path).sizes() == {"a": 2}


def test_a_plain_path_is_used_without_fsspec(tmp_path):
    code = f"import sys; from gristmill.storage import Folder; folder = Folder({str(tmp_path)!r}); "
    code += "folder.write('a', b'1'); folder.read('a'); folder.exists('a'); folder.names(); folder.remove('a'); "
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code + "print('fsspec' in sys.modules)"]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300).stdout == "False\n"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no folder here that cannot be synced")
def test_a_file_system_that_cannot_sync_folders_is_no_error():
    descriptor = os.open("/proc/self", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    Folder("/proc/self").sync(["no-such-file"])
