"""Precision and recall of fuzzy deduplication on a labelled set, ours and peers'.

    python benchmarks/dedup/quality.py LABELLED OUT [--peers VENVS] [--only gristmill,datatrove,...]

LABELLED is what `labelled.py` has made, VENVS a folder with the peers' virtual environments (``datatrove``,
``textdedup``; see README.md). All have 20 bands of 13; shingles are 24 characters or 5 words. Prints Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from score import Rates, Score, read_clusters, read_labels, score

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "text_filters"))
from measure import measure  # noqa: E402  # of the benchmark beside this one

WORKERS = "2"


@dataclass(frozen=True)
class Tool:
    """A way to find near-duplicates: a job, and the environment that it runs in (None: this one)."""

    label: str
    environment: str | None
    script: str
    options: tuple[str, ...] = ()


TOOLS = {
    "gristmill": Tool("gristmill, 24 characters", None, "gristmill_fuzzy.py"),
    "gristmill-words": Tool("gristmill, 5 words", None, "gristmill_fuzzy.py", ("word_ngrams=5",)),
    "gristmill-classic": Tool("gristmill, classic MinHash", None, "gristmill_fuzzy.py", ('method="classic"',)),
    "gristmill-as-is": Tool("gristmill, not normalized", None, "gristmill_fuzzy.py", ("normalize=false",)),
    "gristmill-verify": Tool("gristmill, verified", None, "gristmill_fuzzy.py", ("verify=true",)),
    "datatrove": Tool("datatrove, 5 words", "datatrove", "datatrove_fuzzy.py"),
    "textdedup": Tool("text-dedup, 5 words", "textdedup", "textdedup_fuzzy.py"),
}


def run(name: str, labelled: Path, out: Path, venvs: Path | None) -> Score:
    tool = TOOLS[name]
    python = Path(sys.executable)
    if tool.environment is not None:
        assert venvs is not None
        python = venvs.absolute() / tool.environment / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"{python} is not there: README.md says how the peers are installed.")
    folder = out.absolute() / name
    shutil.rmtree(folder, ignore_errors=True)
    source = str((labelled / "docs").absolute())
    command = [str(python), str(HERE / "jobs" / tool.script), source, str(folder), WORKERS, "clusters", *tool.options]
    log = out / f"{name}.log"
    done = measure(name, command, log)
    if not done.ok:
        print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
        raise SystemExit(f"{name} failed ({done.code}); its output is in {log}.")
    print(f"{name}: {done.wall_s:.1f} s, {done.said['kept']:,} documents kept", file=sys.stderr, flush=True)
    return score(read_labels(labelled / "labels.jsonl"), *read_clusters(folder / "clusters.jsonl"))


def markdown(scores: dict[str, Score]) -> str:
    labels = [TOOLS[name].label for name in scores]
    columns = ("precision", "recall", "F1")
    lines = [
        "| | pairs: " + " | ".join(columns) + " | removed: " + " | ".join(columns) + " |",
        "|---" * 7 + "|",
    ]
    for label, one in zip(labels, scores.values(), strict=True):
        cells = [f"{value:.4f}" for rates in (one.pairs, one.removed) for value in _three(rates)]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += [
        "",
        f"| found, of the pairs of each kind | pairs | {' | '.join(labels)} |",
        "|---" * (len(labels) + 2) + "|",
    ]
    kinds = list(next(iter(scores.values())).pairs_by_kind)
    first = next(iter(scores.values())).pairs_by_kind
    for kind in kinds:
        if first[kind].wanted:
            cells = [_found(one.pairs_by_kind[kind]) for one in scores.values()]
            lines.append(f"| {kind} | {first[kind].wanted:,} | {' | '.join(cells)} |")
    for kind in kinds:
        if not first[kind].wanted:
            cells = [f"{one.pairs_by_kind[kind].wrong:,} wrong" for one in scores.values()]
            lines.append(f"| not the same: {kind} | 0 | {' | '.join(cells)} |")
    return "\n".join(lines)


def _three(rates: Rates) -> tuple[float, float, float]:
    return rates.precision, rates.recall, rates.f1


def _found(rates: Rates) -> str:
    wrong = f", {rates.wrong:,} wrong" if rates.wrong else ""
    return f"{rates.recall:.1%}{wrong}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labelled", type=Path)
    parser.add_argument("out", type=Path, help="for what the tools write")
    parser.add_argument("--peers", type=Path, help="the folder of the peers' environments; without it they do not run")
    parser.add_argument("--only", default=",".join(TOOLS), help=f"some of {', '.join(TOOLS)}")
    args = parser.parse_args()
    names = args.only.split(",")
    unknown = sorted(set(names) - set(TOOLS))
    if unknown:
        parser.error(f"there is no {unknown[0]!r}: take some of {', '.join(TOOLS)}.")
    names = [name for name in names if args.peers is not None or TOOLS[name].environment is None]
    scores = {name: run(name, args.labelled, args.out, args.peers) for name in names}
    print(markdown(scores))


if __name__ == "__main__":
    main()
