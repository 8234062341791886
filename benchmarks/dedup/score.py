"""How good clusters of documents are, measured by labels."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from pathlib import Path


@dataclass(frozen=True)
class Label:
    group: int
    kind: str
    place: int
    rule: str


@dataclass
class Rates:
    """Counts of what was right and wrong, and the rates that follow."""

    right: int = 0
    wrong: int = 0
    wanted: int = 0
    """The number that a tool should have found."""

    @property
    def precision(self) -> float:
        found = self.right + self.wrong
        return self.right / found if found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted if self.wanted else 1.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass
class Score:
    """Pairs of documents in the same cluster, and documents removed: of all kinds, and by kind."""

    pairs: Rates = field(default_factory=Rates)
    removed: Rates = field(default_factory=Rates)
    pairs_by_kind: dict[str, Rates] = field(default_factory=lambda: defaultdict(Rates))
    removed_by_kind: dict[str, Rates] = field(default_factory=lambda: defaultdict(Rates))


def read_labels(path: Path) -> dict[str, Label]:
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {r["id"]: Label(r["group"], r["kind"], r["place"], r["rule"]) for r in records}


def read_clusters(path: Path) -> tuple[dict[str, str], set[str]]:
    """The cluster of each document that is in one, and which documents were removed."""
    clusters: dict[str, str] = {}
    kept: dict[str, bool] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            clusters[record["id"]] = str(record["cluster"])
            kept[record["id"]] = record["kept"]
    return clusters, {ident for ident, stays in kept.items() if not stays}


def score(labels: Mapping[str, Label], clusters: Mapping[str, str], removed: Iterable[str]) -> Score:
    made = Score()
    _score_pairs(made, labels, clusters)
    _score_removed(made, labels, set(removed))
    return made


def is_pair(one: Label, other: Label) -> bool | None:
    """Whether two documents are near-duplicates; None where the labels do not say."""
    if one.group != other.group or one.rule == "none":
        return False
    return True if one.rule == "all" or abs(one.place - other.place) == 1 else None


def _kinds(labels: Mapping[str, Label]) -> list[str]:
    """In the order in which they were made."""
    return list(dict.fromkeys(label.kind for label in sorted(labels.values(), key=lambda label: label.group)))


def _score_pairs(made: Score, labels: Mapping[str, Label], clusters: Mapping[str, str]) -> None:
    groups: dict[int, list[tuple[str, Label]]] = defaultdict(list)
    for ident, label in sorted(labels.items(), key=lambda item: item[1].group):
        groups[label.group].append((ident, label))
    undecided: Counter[str] = Counter()
    """Pairs in a cluster that count neither way, by kind."""
    for members in groups.values():
        for (a, one), (b, other) in combinations(members, 2):
            truth = is_pair(one, other)
            together = a in clusters and clusters[a] == clusters.get(b)
            if truth is None:
                undecided[one.kind] += together
            elif truth:
                rates = made.pairs_by_kind[one.kind]
                rates.wanted += 1
                rates.right += together
    # All other pairs in a cluster are wrong. They are counted, not listed: a cluster may be large.
    by_cluster: dict[str, Counter[str]] = defaultdict(Counter)
    for ident, cluster in clusters.items():
        by_cluster[cluster][labels[ident].kind] += 1
    touched: Counter[str] = Counter()
    total = 0
    for kinds in by_cluster.values():
        size = kinds.total()
        total += comb(size, 2)
        for kind, count in kinds.items():
            touched[kind] += comb(size, 2) - comb(size - count, 2)
    for kind in _kinds(labels):
        rates = made.pairs_by_kind[kind]
        rates.wrong = touched[kind] - rates.right - undecided[kind]
        made.pairs.right += rates.right
        made.pairs.wanted += rates.wanted
    made.pairs.wrong = total - made.pairs.right - undecided.total()


def _score_removed(made: Score, labels: Mapping[str, Label], removed: set[str]) -> None:
    """A document is removed rightly if one of its group is left."""
    sizes, gone = Counter(label.group for label in labels.values()), Counter(labels[ident].group for ident in removed)
    of_group = {label.group: label for label in labels.values()}
    for group, label in of_group.items():
        most = 0 if label.rule == "none" else sizes[group] - 1
        right = min(gone[group], most)
        for rates in (made.removed, made.removed_by_kind[label.kind]):
            rates.right += right
            rates.wrong += gone[group] - right
            rates.wanted += most
