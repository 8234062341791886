"""Where compiled kernels are kept, and what happens when they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.kernels import compile as compiling

USE = """
import sys
from gristmill.kernels import features
from gristmill.kernels.texts import Texts
assert "numba" not in sys.modules
features.preload(["symbols"])
print(int(Texts.of(["# and #"]).symbols.hashes[0]))
"""


def use(**environment: str | Path) -> subprocess.CompletedProcess[str]:
    given = {
        name: value for name, value in os.environ.items() if name not in ("GRISTMILL_CACHE_DIR", "NUMBA_CACHE_DIR")
    }
    given["PYTHONPATH"] = os.pathsep.join(sys.path)
    given |= {name: str(value) for name, value in environment.items()}
    return subprocess.run([sys.executable, "-c", USE], env=given, capture_output=True, text=True, timeout=100)


def test_kernels_are_compiled_once_with_a_word_to_the_user_and_again_if_the_cache_is_damaged(tmp_path):
    first = use(GRISTMILL_CACHE_DIR=tmp_path)
    assert (first.stdout, first.returncode) == ("2\n", 0), first.stderr
    assert "compiling kernels, once: about 1 s" in first.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("kernels-")
    compiled = {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")}
    assert compiled
    again = use(GRISTMILL_CACHE_DIR=tmp_path)
    assert (again.stdout, again.stderr) == ("2\n", "")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")} == compiled
    for path in folder.rglob("*.nb[ic]"):
        path.write_bytes(b"nonsense")
    assert use(GRISTMILL_CACHE_DIR=tmp_path).stdout == "2\n"


def test_without_a_place_to_write_kernels_are_compiled_all_the_same(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder")
    found = use(GRISTMILL_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere, TMPDIR=tmp_path / "tmp")
    assert found.stdout == "2\n"


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
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout == "set()\n", found.stderr
