"""Where compiled kernels are kept, and what happens when they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill.kernels import compile as compiling
from gristmill.kernels import native

USE = """
import sys
from gristmill.kernels import features
from gristmill.kernels.texts import Texts
assert "numba" not in sys.modules
features.preload(["symbols"])
print(int(Texts.of(["# and #"]).symbols.hashes[0]), "numba" in sys.modules)
"""


def use(**environment: str | Path) -> subprocess.CompletedProcess[str]:
    given = {
        name: value for name, value in os.environ.items() if name not in ("GRISTMILL_CACHE_DIR", "NUMBA_CACHE_DIR")
    }
    given["PYTHONPATH"] = os.pathsep.join(sys.path)
    given |= {name: str(value) for name, value in environment.items()}
    return subprocess.run([sys.executable, "-c", USE], env=given, capture_output=True, text=True, timeout=300)


def test_kernels_are_compiled_once_with_a_word_to_the_user_and_loaded_without_numba(tmp_path):
    first = use(GRISTMILL_CACHE_DIR=tmp_path)
    assert (first.stdout, first.returncode) == ("2 True\n", 0), first.stderr
    assert "compiling kernels, once: about 1 s" in first.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("kernels-")
    (path,) = folder.iterdir()
    made = path.stat().st_mtime_ns
    again = use(GRISTMILL_CACHE_DIR=tmp_path)
    assert (again.stdout, again.stderr) == ("2 False\n", "")
    assert path.stat().st_mtime_ns == made


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"nonsense", lambda data: b"{}\n" + data])
def test_what_is_damaged_in_the_cache_is_compiled_again(tmp_path, damage):
    use(GRISTMILL_CACHE_DIR=tmp_path)
    (path,) = tmp_path.rglob("*.kernel")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert use(GRISTMILL_CACHE_DIR=tmp_path).stdout == "2 True\n"
    assert len(path.read_bytes()) == len(whole)


def test_kernels_are_compiled_if_no_cache_folder_can_be_written(tmp_path):
    nowhere = tmp_path / "file"
    for path in (nowhere, tmp_path / f"gristmill-{os.getuid()}"):
        path.write_text("not a folder")
    found = use(GRISTMILL_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere, TMPDIR=tmp_path)
    assert found.stdout == "2 True\n"


@compiling.kernel("ints out_ints")
def doubled(numbers, out):
    for k in range(len(numbers)):
        out[k] = 2 * numbers[k]
    return len(numbers)


@compiling.kernel("ints out_ints")
def doubled_in_a_new_array(numbers, out):
    made = np.empty(len(numbers), np.int64)
    for k in range(len(numbers)):
        made[k] = 2 * numbers[k]
    out[:] = made
    return len(numbers)


class Own(compiling.Kernel):
    def __init__(self, source: compiling.KernelSource) -> None:
        super().__init__(f"test_compile.{source.function.__name__}")
        self._source = source

    def source(self) -> compiling.KernelSource:
        return self._source


def used(source: compiling.KernelSource) -> tuple[Any, list[int]]:
    """Return the compiled kernel, and its output for three numbers."""
    kernel = Own(source)
    out = np.zeros(3, np.int64)
    assert kernel(np.array([1, 2, 3]), out) == 3
    return kernel._compiled, out.tolist()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_a_kernel_that_allocates_is_left_to_numba_and_that_is_remembered(own_cache, monkeypatch):
    compiled, out = used(doubled_in_a_new_array)
    assert out == [2, 4, 6] and not isinstance(compiled, native.Native)
    (path,) = own_cache.glob("*.kernel")
    assert path.read_bytes() == native.NONE and any(own_cache.rglob("*.nbi"))
    monkeypatch.delattr(native, "compile_")  # not tried again
    assert used(doubled_in_a_new_array)[1] == [2, 4, 6]


def test_where_object_code_cannot_be_loaded_numba_does_all(own_cache, monkeypatch):
    assert isinstance(used(doubled)[0], native.Native)

    def refuse() -> None:
        raise OSError("not here")

    monkeypatch.setattr(native, "_check_platform", refuse)
    monkeypatch.setattr(native, "_engine", refuse)  # the one there is holds the code of other kernels
    compiled, out = used(doubled)
    assert out == [2, 4, 6] and not isinstance(compiled, native.Native)


@pytest.mark.parametrize(
    "numbers", [np.arange(3, dtype=np.int32), np.arange(6)[::2], np.zeros((3, 1), np.int64)], ids=str
)
def test_an_array_of_another_kind_is_refused(own_cache, numbers):
    kernel = Own(doubled)
    kernel(np.arange(3), np.zeros(3, np.int64))
    with pytest.raises(TypeError, match="1-dimensional contiguous arrays of int64"):
        kernel(numbers, np.zeros(3, np.int64))


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Calls `cache_folder` afresh, with an environment and folders of the test's own."""
    monkeypatch.delenv("GRISTMILL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(compiling.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return compiling.cache_folder.__wrapped__


def test_the_users_cache_folder_is_used_unless_another_is_named(places, tmp_path, monkeypatch):
    assert places().parent == tmp_path / "home" / "gristmill"
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "mine"))
    assert places().parent == tmp_path / "mine"


def test_a_folder_that_cannot_be_written_is_passed_over(places, tmp_path):
    (tmp_path / "home").write_text("not a folder")
    folder = places()
    assert folder.parent.parent == tmp_path / "tmp"
    assert folder.parent.stat().st_mode & 0o077 == 0


def test_a_temporary_folder_that_others_can_write_is_not_trusted(places, tmp_path):
    (tmp_path / "home").write_text("not a folder")
    shared = tmp_path / "tmp" / f"gristmill-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    assert places() is None


def test_a_change_in_any_source_of_kernels_is_another_cache(monkeypatch, tmp_path):
    for path in Path(compiling.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiling, "__file__", str(tmp_path / "compile.py"))
    before = compiling._fingerprint()
    with open(tmp_path / "utf8.py", "a") as file:
        file.write("# changed\n")
    assert compiling._fingerprint() != before


def test_importing_filters_loads_neither_numba_nor_pyarrow():
    code = "import sys, gristmill.stages.text.filters; print({'numba', 'pyarrow', 'pandas'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert found.stdout == "set()\n", found.stderr
