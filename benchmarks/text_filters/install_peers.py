"""Makes a virtual environment for each peer, from the package index, under WORK/venvs.

    python benchmarks/text_filters/install_peers.py bench-work [--peers curator,datatrove,...]

Takes uv where it is on the PATH and pip where it is not (pip needs long for some of them). What was installed is
written to WORK/venvs/<peer>.txt; an environment that has such a list is left as it is.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

TORCH = "torch==2.13.0"
PEERS: dict[str, list[str]] = {
    "plain": ["orjson==3.13.0"],
    "curator": ["nemo-curator[text_cpu]==1.4.0", TORCH],
    "datatrove": ["datatrove[processing,io]==0.10.1", "spacy==3.8.18", "orjson==3.13.0", TORCH],
    "datajuicer": ["py-data-juicer==1.6.1", "aiohttp", TORCH],
    "textdedup": ["text-dedup==0.4.0"],
}


def python_of(work: Path, peer: str) -> Path:
    """The interpreter of a peer's environment."""
    return work.absolute() / "venvs" / peer / "bin" / "python"


def installed_list(work: Path, peer: str) -> Path:
    return work / "venvs" / f"{peer}.txt"


def install(work: Path, peer: str) -> None:
    venv = work / "venvs" / peer
    python = python_of(work, peer)
    shutil.rmtree(venv, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
        installing = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *PEERS[peer]]
        subprocess.run(installing, check=True)
        listing = [uv, "pip", "freeze", "--python", str(python)]
    else:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        # torch first: pip then has one large package fewer to look for versions of.
        for packages in ([TORCH], PEERS[peer]) if TORCH in PEERS[peer] else (PEERS[peer],):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        listing = [str(python), "-m", "pip", "freeze"]
    done = subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True)
    installed_list(work, peer).write_text(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder for everything the benchmark makes")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {', '.join(PEERS)}")
    args = parser.parse_args()
    peers = args.peers.split(",")
    unknown = sorted(set(peers) - set(PEERS))
    if unknown:
        parser.error(f"there is no peer {', '.join(unknown)}: take some of {', '.join(PEERS)}.")
    (args.work / "venvs").mkdir(parents=True, exist_ok=True)
    failed = []
    for peer in peers:
        if installed_list(args.work, peer).exists():
            print(f"{peer}: is there already", flush=True)
            continue
        began = time.monotonic()
        try:
            install(args.work, peer)
        except subprocess.CalledProcessError as error:
            failed.append(peer)
            print(f"{peer}: failed, {error}", flush=True)
        else:
            print(f"{peer}: installed in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
