"""The kernels find just what a plain model finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.decontamination.ngram_model import Model

from gristmill.kernels.overlap import NgramIndex
from gristmill.kernels.texts import Texts

# Few different words and characters, so that n-grams meet at random and in every mixture of scripts.
PIECES = [
    *(
        "a",
        "B",
        "b",
        "Ab",
        "c'c",
        "cc",
        "don't",
        "-",
        "—",
        "…",
        "x1",
        "ß",
        "É",
        "é",
        "e\u0301",
        "Σ",
        "ς",
        "σ",
        "İ",
        "ı",
    ),
    *("中", "文", "々", "カ", "ー", "・", "ก", "ำ", "แ", "ລ", "မ", "한", "국", "🙂", "☎\ufe0f", "\u200b", "\u00ad"),
    *("ж", "Ж", "א", "ش", "़", "𝒳", "𠀀", "\x00", "\x1f", "\u2028", "\u00a0", "\u3000", "\n", " ", " ", " ", " "),
]
TEXT = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def found(index: NgramIndex, docs: list[str], min_matches: int, min_share: float) -> list[tuple[int, int, set[int]]]:
    texts = Texts.of(docs)
    overlaps = index.find(texts, index.needs(min_matches, min_share), by_share=min_share > 0, with_spans=True)
    result = []
    for row, doc in enumerate(docs):
        data = doc.encode()
        covered: set[int] = set()
        for a, b in overlaps.spans[:, overlaps.span_edges[row] : overlaps.span_edges[row + 1]].T - texts.starts[row]:
            covered.update(range(len(data[:a].decode()), len(data[:b].decode())))
        result.append((int(overlaps.entry[row]), int(max(overlaps.matches[row], 0)), covered))
    return result


def index_of(entries: list[list[str]], ngram: int, **options: object) -> NgramIndex:
    owners = [number for number, texts in enumerate(entries) for _ in texts]
    texts = Texts.of([text for texts in entries for text in texts])
    return NgramIndex.of(texts, np.array(owners, np.int64), ngram, **options)  # type: ignore[arg-type]


@settings(max_examples=300)
@given(
    entries=st.lists(st.lists(TEXT, min_size=1, max_size=2), min_size=1, max_size=5),
    docs=st.lists(TEXT, max_size=4),
    ngram=st.integers(1, 5),
    min_words=st.integers(1, 3),
    max_frequency=st.sampled_from([None, 1, 2]),
    normalize=st.booleans(),
    min_matches=st.integers(1, 3),
    min_share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_results_agree_with_a_plain_search(
    entries, docs, ngram, min_words, max_frequency, normalize, min_matches, min_share
):
    docs = [*docs, *(text for texts in entries for text in texts), "".join(entries[0]) * 2]
    options = {"min_words": min_words, "max_frequency": max_frequency, "normalize": normalize}
    model = Model(entries, ngram, **options)
    index = index_of(entries, ngram, **options)
    assert index.sizes.tolist() == [len(grams) for grams in model.grams]
    assert found(index, docs, min_matches, min_share) == [model.find(doc, min_matches, min_share) for doc in docs]


def test_many_spans_fit():
    phrase = "one two three"
    doc = " x ".join([phrase] * 3000)
    texts = Texts.of(["nothing", doc, doc])
    index = index_of([[phrase]], 3)
    overlaps = index.find(texts, index.needs(1, 0.0), with_spans=True)
    assert overlaps.span_edges.tolist() == [0, 0, 3000, 6000]
    assert overlaps.matches[1:].tolist() == [1, 1]
    first = overlaps.spans[:, 3000:] - texts.starts[2]
    assert (first == overlaps.spans[:, :3000] - texts.starts[1]).all()
    assert first[:, 7].tolist() == [7 * (len(phrase) + 3), 7 * (len(phrase) + 3) + len(phrase)]


def test_an_empty_reference_and_no_documents():
    index = index_of([[""]], 5)
    assert found(index, ["a b c d e f", ""], 1, 0.0) == [(-1, 0, set()), (-1, 0, set())]
    assert found(index_of([["a b"]], 2), [], 1, 0.0) == []


@pytest.mark.parametrize(("text", "shared"), [("中文" * 13, 1), ("ก" * 52, 1), ("word " * 13, 1), ("中文" * 12, 0)])
def test_thirteen_words_are_as_long_in_scripts_without_spaces(text, shared):
    index = index_of([[text + " " + text]], 13)
    assert found(index, [text], 1, 0.0)[0][0] == shared - 1


def test_a_long_document_is_read_in_little_memory():
    rng = np.random.default_rng(3)
    words = [f"w{n}" for n in rng.integers(0, 1000, 200_000)]
    index = index_of([[" ".join(words[150_000:150_013])]], 13)
    text = " ".join(words)
    entry, matches, covered = found(index, [text], 1, 0.0)[0]
    assert (entry, matches) == (0, 1)
    assert text[min(covered) : max(covered) + 1].split() == words[150_000:150_013]
