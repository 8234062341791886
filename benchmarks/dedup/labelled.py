"""Makes a labelled set: documents of which it is known, by construction, which are near-duplicates of which.

    python benchmarks/dedup/labelled.py PROSE OUT [--groups 60] [--singles 3000] [--seed 7]

PROSE is a folder of JSONL files with English documents in "text", or a text file with a paragraph on each line. OUT
gets ``docs/*.jsonl`` (id, text) in random order, and ``labels.jsonl``: for each document its group, the kind of the
group, its place in it and the rule for its pairs: "all" are near-duplicates, "chain": those next to each other are
(the others are open), "none" are, however alike they look. Documents of different groups are never
near-duplicates.

The same arguments make the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import edits
from vocabulary import ENDS, SCRIPTS, SPACED, space_of, words_of

FILES = 4
SHINGLE = 8
"""Words by which paragraphs differ: two in the pool have hardly any run of so many in common."""
SMALL, LARGE = 120, 1500


@dataclass(frozen=True)
class Group:
    """Documents that belong together, in order."""

    kind: str
    rule: str
    texts: list[str]


def paragraphs(prose: Path) -> Iterator[str]:
    if prose.is_file():
        with prose.open(encoding="utf-8") as lines:
            yield from (line.rstrip("\n") for line in lines)
        return
    for path in sorted(prose.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield from json.loads(line)["text"].split("\n\n")


def marks_of(text: str) -> set[int]:
    """Return hashes of the runs of words of a text."""
    words = text.split()
    runs = [" ".join(words[i : i + SHINGLE]).lower() for i in range(len(words) - SHINGLE + 1)]
    return {int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest()) for run in runs}


def pool(prose: Path, wanted: int) -> list[str]:
    """So many paragraphs of prose, none of which is nearly another."""
    seen: set[int] = set()
    found: list[str] = []
    for paragraph in paragraphs(prose):
        text = " ".join(paragraph.split())
        words = text.split()
        if not SMALL <= len(text) <= LARGE or len(words) < 20 or not text.isascii():
            continue
        if sum(word.isalpha() or word[:-1].isalpha() for word in words) < 0.8 * len(words):
            continue
        runs = len(words) - SHINGLE + 1
        marks = marks_of(text)
        if len(marks & seen) > 0.1 * runs or len(marks) < 0.8 * runs:
            continue
        seen |= marks
        found.append(text)
        if len(found) == wanted:
            return found
    raise SystemExit(f"{prose} has {len(found)} different paragraphs of prose; {wanted} are needed: make fewer groups.")


class Maker:
    """Makes groups out of a pool of paragraphs, each of which is used once."""

    def __init__(self, prose: list[str], rng: random.Random) -> None:
        self.rng = rng
        self.prose = prose
        self.words = [word for paragraph in prose[:2000] for word in paragraph.split()]
        self.sentences = [s for p in prose[:2000] for s in edits.SENTENCE.split(p) if len(s) > 40]

    def document(self) -> str:
        size = min(8000, max(600, self.rng.lognormvariate(7.3, 0.6)))
        return self.of_size(size)

    def of_size(self, size: float) -> str:
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            parts.append(self.prose.pop())
        return "\n\n".join(parts)

    def changed(self, kind: str, change: Callable[[str], str], copies: int = 2) -> Group:
        base = self.document()
        return Group(kind, "all", [base, *(change(base) for _ in range(copies))])

    def groups(self) -> Iterator[Group]:
        """One group of each kind."""
        rng = self.rng
        for percent in (1, 2, 5, 10):
            yield self.changed(
                f"words edited, {percent} %", lambda t, p=percent: edits.words(t, p / 100, self.words, rng)
            )
        yield self.changed("sentences inserted", lambda t: edits.sentences_inserted(t, 12, self.sentences, rng))
        for percent in (95, 90, 80, 60):
            yield self.changed(f"truncated to {percent} %", lambda t, p=percent: edits.kept(t, p / 100), copies=1)
        yield self.changed("lower case", edits.in_lower_case, copies=1)
        yield self.changed("sentences in capitals", lambda t: edits.with_loud_sentences(t, rng), copies=1)
        yield self.changed("lines broken", lambda t: edits.rewrapped(t, 72), copies=1)
        yield self.changed("spaces doubled", lambda t: edits.spaced_out(t, rng), copies=1)
        yield self.changed("paragraphs shuffled", lambda t: edits.shuffled(t, rng))
        yield self.boilerplate_around_one()
        yield self.boilerplate_around_others()
        yield self.chain()
        yield self.template()
        yield self.quotation()
        for script in SCRIPTS:
            yield self.script(script)

    def boilerplate_around_one(self) -> Group:
        base = self.of_size(1500)
        frames = [(self.of_size(50)[:110], self.of_size(50)[:110]) for _ in range(2)]
        return Group("boilerplate around", "all", [base, *(edits.wrapped(base, *frame) for frame in frames)])

    def boilerplate_around_others(self) -> Group:
        header, footer = self.of_size(300), self.of_size(300)
        texts = [edits.wrapped(self.of_size(900), header, footer) for _ in range(3)]
        return Group("same boilerplate, other text", "none", texts)

    def chain(self) -> Group:
        texts = [self.document()]
        for _ in range(4):
            texts.append(edits.words(texts[-1], 0.01, self.words, self.rng))
        return Group("chain", "chain", texts)

    def template(self) -> Group:
        """A form that is filled in differently: half of each document is the same."""
        form = edits.SENTENCE.split(" ".join(self.of_size(1200).split("\n\n")))
        texts = [" ".join(f"{s} {self.rng.choice(self.sentences)}" for s in form) for _ in range(3)]
        return Group("same template, other content", "none", texts)

    def quotation(self) -> Group:
        """The same topic: two of about six paragraphs are common."""
        common = [self.prose.pop(), self.prose.pop()]
        texts = []
        for _ in range(3):
            own = [self.prose.pop() for _ in range(5)]
            at = self.rng.randrange(5)
            texts.append("\n\n".join([*own[:at], *common, *own[at:]]))
        return Group("same topic, quotations", "none", texts)

    def script(self, name: str) -> Group:
        rng, words, space = self.rng, words_of(name), space_of(name)

        def sentence() -> str:
            sentence = space.join(rng.choice(words) for _ in range(rng.randrange(6, 18)))
            return sentence + ENDS.get(name, ".")

        text = "\n\n".join(
            space.join(sentence() for _ in range(rng.randrange(4, 9))) for _ in range(rng.randrange(3, 9))
        )
        change = edits.words if name in SPACED else edits.characters
        share = 0.01
        return Group(f"script: {name}", "all", [text, *(change(text, share, words, rng) for _ in range(2))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prose", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", type=int, default=60, help="of each kind")
    parser.add_argument("--singles", type=int, default=3000, help="documents that are like no other")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    prose = pool(args.prose, args.groups * 170 + args.singles * 8)
    rng.shuffle(prose)
    maker = Maker(prose, rng)
    groups = [group for _ in range(args.groups) for group in maker.groups()]
    groups += [Group("single", "none", [maker.document()]) for _ in range(args.singles)]
    write(groups, args.out, rng)


def write(groups: list[Group], out: Path, rng: random.Random) -> None:
    documents = [(number, group, place) for number, group in enumerate(groups) for place in range(len(group.texts))]
    rng.shuffle(documents)
    (out / "docs").mkdir(parents=True, exist_ok=True)
    size = -(-len(documents) // FILES)
    with (out / "labels.jsonl").open("w", encoding="utf-8") as labels:
        for file in range(FILES):
            with (out / "docs" / f"part-{file:03d}.jsonl").open("w", encoding="utf-8") as docs:
                for at in range(file * size, min((file + 1) * size, len(documents))):
                    number, group, place = documents[at]
                    ident = f"d{at:07d}"
                    docs.write(json.dumps({"id": ident, "text": group.texts[place]}, ensure_ascii=False) + "\n")
                    label = {"id": ident, "group": number, "kind": group.kind, "place": place, "rule": group.rule}
                    labels.write(json.dumps(label) + "\n")
    print(f"{len(documents):,} documents in {len(groups):,} groups of {len({g.kind for g in groups})} kinds")


if __name__ == "__main__":
    main()
