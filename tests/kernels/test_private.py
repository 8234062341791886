"""Code of other users in a cache is never run: who may own and write what is loaded from disk."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gristmill.kernels import compile as compiling
from gristmill.kernels import native, private

OTHER, THIRD = 54321, 54322
"""Users that no machine has."""
ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root can make files of other users: run this test as root")

USE = """
import os, sys
if sys.argv[1:]:
    # what is imported later could be where only root can read
    from gristmill.kernels import char_kernels, native
    from gristmill.kernels.texts import Texts
    native.load(native.compile_(char_kernels.count_symbols.function, char_kernels.count_symbols.signature))
    Texts.of(["#"])
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
from gristmill.kernels import features
from gristmill.kernels.texts import Texts
features.preload(["symbols"])
print(int(Texts.of(["# and #"]).symbols.hashes[0]))
"""
FORGED = 666


def use(*arguments: object, umask: int = 0o022, **environment: str | Path) -> str:
    """Use a kernel in a fresh process, as another user if one is named; what it says it counted: 2 hashes."""
    given = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    given.pop("GRISTMILL_CACHE_DIR", None)
    given["PYTHONPATH"] = os.pathsep.join(sys.path)
    given |= {name: str(value) for name, value in environment.items()}
    command = [sys.executable, "-c", USE, *map(str, arguments)]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, umask=umask)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()


@compiling.kernel("texts out_ints_rows")
def forged(texts, out):
    out[:] = 666


@pytest.fixture(scope="module")
def forgery() -> bytes:
    return native.compile_(forged.function, forged.signature)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which every user may make files, and which every user can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Path:
    """Where a kernel lies in a cache folder."""
    place = tmp_path_factory.mktemp("cache")
    assert use(GRISTMILL_CACHE_DIR=place) == "2"
    (path,) = place.rglob("*.kernel")
    return path.relative_to(place)


@pytest.fixture
def planted(kernel: Path, forgery: bytes) -> Callable[..., Path]:
    """Puts a forged kernel where a process with this environment looks for it."""

    def plant(**environment: Path) -> Path:
        ((variable, path),) = environment.items()
        below = {"HOME": [".cache", "gristmill"], "XDG_CACHE_HOME": ["gristmill"], "GRISTMILL_CACHE_DIR": []}[variable]
        for name in (*below, *kernel.parts):
            if not path.exists():
                path.mkdir(mode=0o700)
            path /= name
        path.write_bytes(forgery)
        path.chmod(0o600)
        return path

    return plant


def give(path: Path, user: int) -> None:
    """Make another user the owner of a folder or file and of all in it."""
    for one in (path, *path.rglob("*")):
        os.chown(one, user, user, follow_symlinks=False)


def test_a_forged_kernel_of_our_own_would_be_run(planted, folder):
    """Otherwise the tests below could not fail."""
    planted(GRISTMILL_CACHE_DIR=folder)
    assert use(GRISTMILL_CACHE_DIR=folder) == str(FORGED)


@as_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "GRISTMILL_CACHE_DIR"])
@pytest.mark.parametrize("user", [None, THIRD])
def test_a_kernel_that_another_user_planted_in_a_folder_for_all_is_not_run(planted, folder, variable, user):
    planted(**{variable: folder})
    (top,) = folder.iterdir()
    give(top, OTHER)
    arguments = () if user is None else (user,)
    found = use(*arguments, **{"HOME": folder / "nowhere", variable: folder, "TMPDIR": folder})
    assert found == "2"
    kernels = [path for path in folder.rglob("*.kernel") if path.stat().st_uid == (user or 0)]
    assert kernels, "the kernel was not cached in a private place"
    for path in (kernels[0], *kernels[0].parents):
        if path != folder and folder in path.parents:
            assert path.stat().st_mode & 0o077 == 0


@as_root
def test_a_kernel_of_another_user_in_our_own_folder_is_replaced(planted, folder):
    path = planted(GRISTMILL_CACHE_DIR=folder)
    os.chown(path, OTHER, OTHER)
    assert use(GRISTMILL_CACHE_DIR=folder) == "2"
    assert path.stat().st_uid == 0


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_kernel_that_others_can_write_is_not_run_and_is_replaced(planted, folder, mode):
    path = planted(GRISTMILL_CACHE_DIR=folder)
    path.chmod(mode)
    assert use(GRISTMILL_CACHE_DIR=folder) == "2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(planted, folder, mode):
    path = planted(GRISTMILL_CACHE_DIR=folder / "place")
    path.parent.chmod(mode)
    assert use(GRISTMILL_CACHE_DIR=folder / "place", HOME=folder / "home") == "2"
    path.parent.chmod(0o700)
    path.parent.parent.chmod(mode & 0o777)  # without the sticky bit others could put another folder in its place
    assert use(GRISTMILL_CACHE_DIR=folder / "place", HOME=folder / "home") == "2"


@as_root
def test_a_link_of_another_user_is_not_followed(planted, folder):
    """Not even to a place of our own: another user would choose where we write."""
    planted(GRISTMILL_CACHE_DIR=folder / "place")
    link = folder / "link"
    link.symlink_to(folder / "place")
    assert use(GRISTMILL_CACHE_DIR=link) == str(FORGED)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert use(GRISTMILL_CACHE_DIR=link, HOME=folder / "home") == "2"


def test_a_kernel_that_is_a_link_is_not_followed(planted, folder):
    path = planted(GRISTMILL_CACHE_DIR=folder)
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert use(GRISTMILL_CACHE_DIR=folder) == "2"


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def make_unreadable(path: Path) -> None:
    path.chmod(0)


@pytest.mark.parametrize("damage", [replace_by_folder, replace_by_fifo, replace_by_loop, make_unreadable])
def test_what_is_no_kernel_is_no_error(folder, damage):
    assert use(GRISTMILL_CACHE_DIR=folder) == "2"
    (path,) = folder.rglob("*.kernel")
    damage(path)
    assert use(GRISTMILL_CACHE_DIR=folder) == "2"


@as_root
def test_a_kernel_that_we_cannot_read_is_compiled_again(planted, folder):
    folder.chmod(0o755)
    (folder / "place").mkdir()
    give(folder / "place", THIRD)
    assert use(THIRD, GRISTMILL_CACHE_DIR=folder / "place") == "2"
    (path,) = folder.rglob("*.kernel")
    path.chmod(0)
    assert use(THIRD, GRISTMILL_CACHE_DIR=folder / "place") == "2"
    assert path.stat().st_uid == THIRD and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0, 0o777], ids=oct)
def test_what_is_made_is_private_whatever_the_umask(folder, umask):
    assert use(GRISTMILL_CACHE_DIR=folder / "a" / "b", umask=umask) == "2"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert len(modes) == 4
    assert {mode for name, mode in modes.items() if name.endswith(".kernel")} == {0o600}
    assert {mode for name, mode in modes.items() if not name.endswith(".kernel")} == {0o700}


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return os.mkdir, (self.path,)


@compiling.kernel("ints")
def allocating(numbers):
    return np.empty(len(numbers), np.int64)


class Allocating(compiling.Kernel):
    def source(self) -> compiling.KernelSource:
        return allocating


@as_root
@pytest.mark.parametrize("trap", ["owner", "mode", "folder", None])
def test_a_pickle_in_numbas_cache_is_loaded_only_if_no_other_user_could_write_it(tmp_path, monkeypatch, trap):
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    numbers = np.arange(3)
    assert len(Allocating("test_private.allocating")(numbers)) == 3
    (index,) = tmp_path.rglob("*.nbi")
    assert index.stat().st_mode & 0o077 == 0 and index.parent.stat().st_mode & 0o077 == 0
    index.write_bytes(index.read_bytes().partition(b"\x80")[0] + pickle.dumps(Trap(tmp_path / "sprung")))
    if trap == "owner":
        os.chown(index, OTHER, OTHER)
    elif trap == "mode":
        index.chmod(0o666)
    elif trap == "folder":
        index.parent.chmod(0o777)
    assert len(Allocating("test_private.allocating")(numbers)) == 3
    assert (tmp_path / "sprung").exists() is (trap is None)


@as_root
def test_a_user_without_root_reads_its_own_folders_and_those_of_root_only(folder):
    """In a child process that gives its rights up: root itself may read everything."""
    for name, owner in (("mine", THIRD), ("roots", 0), ("others", OTHER)):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(b"data")
        (folder / name / "file").chmod(0o644)
        (folder / name).chmod(0o755)
        give(folder / name, owner)

    def check() -> None:
        try:
            os.setgid(THIRD)
            os.setuid(THIRD)
            assert private.read(folder / "mine" / "file") == b"data"
            assert private.read(folder / "roots" / "file") == b"data"
            with pytest.raises(PermissionError, match="belongs to another user"):
                private.read(folder / "others" / "file")
            private.write(folder / "mine" / "new", b"more")
            assert private.read(folder / "mine" / "new") == b"more"
            with pytest.raises(PermissionError):
                private.write(folder / "roots" / "new", b"more")
            assert os.listdir(folder / "roots") == ["file"]
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=check)
    child.start()
    child.join(timeout=300)
    assert child.exitcode == 0


def test_links_and_dots_in_a_path_are_resolved(folder):
    (folder / "a" / "b").mkdir(parents=True, mode=0o700)
    (folder / "link").symlink_to("a/../a/./b")
    (folder / "round").symlink_to("round")
    with private.open_folder(folder / "link") as (_, path):
        assert path == Path(os.path.realpath(folder / "a" / "b"))
    with pytest.raises(OSError, match="symbolic links"), private.open_folder(folder / "round"):
        pass
    with pytest.raises(PermissionError, match="everyone can write"), private.open_folder(folder):
        pass
