"""Where gristmill's rules and those of NeMo Curator and datatrove disagree, and why.

    python benchmarks/text_filters/verdicts.py bench-work

Every rule of the benchmark judges every document of WORK/c20k by itself, in gristmill and, in their own environments
and without their executors, in the filter classes of the peers. Each disagreement is traced to the one difference in
definition that turns gristmill's verdict into the peer's (explanations.py). Prints Markdown; ends with 1 if one
disagreement has no explanation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from explanations import CURATOR, DATATROVE, OURS, SPACY, Difference, explain
from install_peers import python_of

HERE = Path(__file__).parent
RECIPES = ("gopher-quality", "gopher-repetition")
UNEXPLAINED = "**not explained**"
HEAD = ("rule", "gristmill drops", "the peer drops", "disagree", "dropped only by", "documents", "why", "for example")
Verdicts = dict[str, dict[str, Any]]
"""By document and rule: True for keep, False for drop, or the error that the filter ended with."""


def our_verdicts(source: Path) -> tuple[Verdicts, dict[str, str]]:
    """Ours, and the texts."""
    from gristmill.kernels.texts import Texts
    from gristmill.stages.text.recipes import find_recipe

    filters = {one.name: one for name in RECIPES for one in find_recipe(name).make({})}
    verdicts: Verdicts = {}
    all_texts: dict[str, str] = {}
    for path in sorted(source.glob("*.jsonl")):
        documents = [json.loads(line) for line in path.open(encoding="utf-8")]
        texts = Texts.of([document["text"] for document in documents])
        kept = {rule: one.keep_batch(one.score_batch(texts)) for rule, one in filters.items()}
        for i, document in enumerate(documents):
            verdicts[document["id"]] = {rule: bool(kept[rule][i]) for rule in filters}
            all_texts[document["id"]] = document["text"]
    return verdicts, all_texts


def peer_verdicts(work: Path, peer: str) -> tuple[Verdicts, Verdicts]:
    """The peer's, as they are and with words at white space (empty where the peer has these anyway)."""
    path = work / "verdicts" / f"{peer}.jsonl"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        script = HERE / "peers" / f"verdicts_{peer}.py"
        part = path.with_suffix(".part")
        subprocess.run([str(python_of(work, peer)), str(script), str(work / "c20k"), str(part)], check=True)
        part.rename(path)
    theirs: Verdicts = {}
    split: Verdicts = {}
    for line in path.open():
        record = json.loads(line)
        theirs[record["id"]] = {
            rule: value[1] if isinstance(value, list) else value for rule, value in record["verdicts"].items()
        }
        split[record["id"]] = record.get("split", {})
    return theirs, split


def why(ours: bool, theirs: Any, split: Any, text: str, rule: str, differences: list[Difference]) -> str:
    """The difference that a disagreement comes from."""
    if isinstance(theirs, str):
        return f"ends with {theirs}"
    if OURS[rule](text) != ours:
        return UNEXPLAINED
    if split is not None and split == ours:
        return SPACY
    return explain(rule, text, theirs, differences) or UNEXPLAINED


def compare(
    ours: Verdicts, texts: Mapping[str, str], theirs: Verdicts, split: Verdicts, known: Mapping[str, list[Difference]]
) -> tuple[str, int]:
    """A table, and how many disagreements have no explanation."""
    dropped: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for id_, mine in ours.items():
        for rule, keep in mine.items():
            other = theirs[id_][rule]
            dropped[rule, "ours"] += not keep
            dropped[rule, "theirs"] += other is not True
            if other is not keep:
                reason = why(keep, other, split[id_].get(rule), texts[id_], rule, known.get(rule, []))
                found[rule, "ours" if other is True else "theirs", reason].append(id_)
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for rule in next(iter(ours.values())):
        kinds = sorted(((key, ids) for key, ids in found.items() if key[0] == rule), key=lambda item: -len(item[1]))
        head = f"| {rule} | {dropped[rule, 'ours']} | {dropped[rule, 'theirs']} | {sum(len(ids) for _, ids in kinds)} |"
        if not kinds:
            lines.append(f"{head} | | | |")
        for (_, who, reason), ids in kinds:
            side = "gristmill" if who == "ours" else "the peer"
            lines.append(f"{head} {side} | {len(ids)} | {reason} | {', '.join(sorted(ids)[:2])} |")
            head = "| | | | |"
    return "\n".join(lines), sum(len(ids) for key, ids in found.items() if key[2] == UNEXPLAINED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder with the corpus and the peers' environments")
    args = parser.parse_args()
    ours, texts = our_verdicts(args.work / "c20k")
    unexplained = 0
    for peer, title, known in (("curator", "NeMo Curator", CURATOR), ("datatrove", "datatrove", DATATROVE)):
        theirs, split = peer_verdicts(args.work, peer)
        table, missing = compare(ours, texts, theirs, split, known)
        unexplained += missing
        print(f"### {title}\n\n{table}\n")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
