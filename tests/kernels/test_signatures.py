"""Hashes, shingles, sketches and sets against plain Python, and against what theory says of them."""

from __future__ import annotations

import numpy as np
import pytest
import sketch_reference as reference
import text_samples as samples
from hypothesis import given, settings

from gristmill.kernels import signatures
from gristmill.kernels.signatures import (
    Sketcher,
    estimated_jaccard,
    exact_hashes,
    jaccards,
    piece_hashes,
    shingle_sets,
)
from gristmill.kernels.texts import Texts

SCRIPTS = [
    "plain ASCII, long enough to be read by the block",
    "漢字かな交じり文の例です。" * 3,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍🚀" * 4,
    "e\u0301" * 20,
]
SCRIPTS += [
    "",
    "x",
    "é",
    " ",
    "नमस्ते दुनिया " * 3,
    "a" * 31 + "é" + "b" * 40,
    "a" * 32 + "漢" * 3 + "c" * 33,
    "мир " * 300,
]


def one(text: str | bytes) -> tuple[int, ...]:
    data = text.encode() if isinstance(text, str) else text
    texts = Texts(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))
    return tuple(exact_hashes(texts)[0].tolist())


def texts_of(pieces: list[bytes]) -> Texts:
    edges = np.cumsum([0, *map(len, pieces)])
    return Texts(np.frombuffer(b"".join(pieces), np.uint8), edges[:-1], edges[1:])


def near_identical() -> list[bytes]:
    """A long text with each of its bits changed, zeros of all lengths, and counters in a frame."""
    base = np.frombuffer(b"all the same but for a bit, all the same! " * 30, np.uint8)
    found = [base.tobytes()]
    for bit in range(8 * len(base)):
        changed = base.copy()
        changed[bit // 8] ^= 1 << bit % 8
        found.append(changed.tobytes())
    found += [bytes(length) for length in range(1200)]
    found += [b"the number is %08d and nothing else" % k for k in range(60_000)]
    found += [b"%d" % k for k in range(30_000)]
    return found


def test_no_two_of_a_hundred_thousand_near_identical_texts_have_a_half_of_their_hash_in_common():
    made = near_identical()
    assert len(set(made)) == len(made) > 100_000
    found = exact_hashes(texts_of(made))
    for half in (found[:, 0], found[:, 1]):
        assert len(np.unique(half)) == len(made)
    assert len(np.unique(found.ravel())) == 2 * len(made)


@pytest.mark.parametrize("length", [3, 7, 8, 9, 16, 17, 100, 511, 512, 513, 1500])
def test_each_bit_of_a_text_changes_each_bit_of_its_hash_half_of_the_time(length):
    random = np.random.default_rng(length)
    changed_bits = []
    for _ in range(4096 // length + 4):
        base = random.integers(0, 256, length, dtype=np.uint8)
        changed = np.tile(base, (8 * length, 1))
        changed[np.arange(8 * length), np.arange(8 * length) // 8] ^= np.uint8(1) << (np.arange(8 * length) % 8).astype(
            np.uint8
        )
        hashes = exact_hashes(texts_of([base.tobytes(), *(row.tobytes() for row in changed)]))
        difference = hashes[1:] ^ hashes[0]
        changed_bits.append(np.unpackbits(difference.view(np.uint8), axis=1))
    share = np.concatenate(changed_bits).mean(axis=0)
    trials = sum(map(len, changed_bits))
    assert len(share) == 128
    assert abs(share - 0.5).max() < 5 * 0.5 / trials**0.5


def test_a_hash_is_of_the_bytes_wherever_they_stand():
    made = [b"x" * length for length in range(1, 70)]
    alone = [one(text) for text in made]
    assert [tuple(row) for row in exact_hashes(texts_of(made)).tolist()] == alone
    assert [tuple(row) for row in exact_hashes(texts_of(made[::-1])).tolist()] == alone[::-1]


def test_another_seed_is_another_hash():
    texts = Texts.of(SCRIPTS)
    assert not (exact_hashes(texts, 1) == exact_hashes(texts, 2)).any()
    assert (exact_hashes(texts, 1) == exact_hashes(texts, 1)).all()


def test_blocks_that_change_places_change_the_hash():
    a, b, c = (letter * 512 for letter in (b"a", b"b", b"c"))
    orders = [(a, b, c), (a, c, b), (b, a, c), (a, a, b), (a, b, a), (b, a, a)]
    assert [len(set(half)) for half in zip(*(one(b"".join(order)) for order in orders), strict=True)] == [6, 6]


@settings(max_examples=40, deadline=None)
@given(strings=samples.batches)
def test_a_hash_is_made_as_it_is_written_down(strings):
    made = [*(text.encode() for text in strings), "".join(strings).encode() * 3]
    assert exact_hashes(texts_of(made), 9).tolist() == [reference.exact_hash(text, 9) for text in made]


@pytest.mark.parametrize("unit,ngrams", [("char", 1), ("char", 3), ("char", 24), ("word", 1), ("word", 5)])
@settings(max_examples=40, deadline=None)
@given(strings=samples.batches)
def test_shingles_are_those_of_plain_python(unit, ngrams, strings):
    values, edges = shingle_sets(Texts.of(strings), ngrams, unit)
    for k, text in enumerate(strings):
        assert values[edges[k] : edges[k + 1]].tolist() == sorted(set(reference.shingles(text, ngrams, unit)))
        assert edges[k + 1] - edges[k] == len(reference.windows(text, ngrams, unit))


@pytest.mark.parametrize("unit,ngrams", [("char", 24), ("char", 2), ("word", 3)])
def test_shingles_are_those_of_plain_python_in_many_scripts_and_across_chunks(unit, ngrams, monkeypatch):
    monkeypatch.setattr(signatures, "CHUNK", 64)
    strings = [*SCRIPTS, *samples.real()[:3], "".join(SCRIPTS) * 5]
    values, edges = shingle_sets(Texts.of(strings), ngrams, unit)
    for k, text in enumerate(strings):
        assert values[edges[k] : edges[k + 1]].tolist() == sorted(set(reference.shingles(text, ngrams, unit)))


@settings(max_examples=40, deadline=None)
@given(strings=samples.batches)
def test_jaccard_is_that_of_the_sets_of_shingles(strings):
    values, edges = shingle_sets(Texts.of(strings), 3, "char")
    pairs = np.array([(a, b) for a in range(len(strings)) for b in range(len(strings))], np.int64).reshape(-1, 2)
    sets = [reference.windows(text, 3, "char") for text in strings]
    wanted = [reference.jaccard(sets[a], sets[b]) for a, b in pairs.tolist()]
    assert jaccards(values, edges, pairs[:, 0], pairs[:, 1]).tolist() == pytest.approx(wanted)


def test_nothing_in_nothing_out():
    none = Texts.of([])
    assert exact_hashes(none).shape == (0, 2)
    sketch = Sketcher().sketch(none)
    assert (sketch.bands.shape, sketch.small.shape) == ((20, 0), (0, 260))
    assert Sketcher().signatures(none).shape == (0, 260)
    assert [array.tolist() for array in shingle_sets(none)] == [[], [0]]
    assert [len(array) for array in piece_hashes(none)] == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("chunk", [64, 4096])
def test_minima_are_those_of_fast_similarity_sketching_as_it_is_written_down(chunk, monkeypatch):
    monkeypatch.setattr(signatures, "CHUNK", chunk)
    sketcher = Sketcher(ngrams=5, num_bands=8, minhashes_per_band=5, seed=7, use_64_bit_hash=True)
    strings = [*SCRIPTS, "ab" * 400, samples.real()[0]]
    found = sketcher.signatures(Texts.of(strings))
    salts = [int(salt) for salt in sketcher.salts()]
    for k, text in enumerate(strings):
        assert found[k].tolist() == reference.fast_minima(reference.shingles(text, 5, "char", 7), 40, salts), text


@pytest.mark.parametrize("method", ["fast", "classic"])
@pytest.mark.parametrize("unit", ["char", "word"])
def test_a_sketch_depends_on_nothing_but_its_text(method, unit, monkeypatch):
    sketcher = Sketcher(ngrams=4, unit=unit, method=method)
    strings = [*SCRIPTS, *samples.real()]
    together, reverse = sketcher.sketch(Texts.of(strings)), sketcher.sketch(Texts.of(strings[::-1]))
    assert (together.bands == reverse.bands[:, ::-1]).all() and (together.small == reverse.small[::-1]).all()
    monkeypatch.setattr(signatures, "CHUNK", 100)
    for k, text in enumerate(strings):
        alone = sketcher.sketch(Texts.of([text]))
        assert (alone.bands[:, 0] == together.bands[:, k]).all() and (alone.small[0] == together.small[k]).all()


@pytest.mark.parametrize("method", ["fast", "classic"])
def test_bands_agree_where_their_rows_do_and_are_mixed_with_their_numbers(method):
    texts = Texts.of([text + ending for text in samples.real() for ending in ("", " and", " more of it", "!" * 90)])
    sketcher = Sketcher(ngrams=6, minhashes_per_band=2, num_bands=30, method=method, use_64_bit_hash=True)
    bands, rows = sketcher.sketch(texts).bands, sketcher.signatures(texts).reshape(len(texts), 30, 2)
    equal = bands[:, :, None] == bands[:, None, :]
    wanted = (rows[:, None] == rows[None, :]).all(axis=-1).transpose(2, 0, 1)
    assert 0 < wanted.mean() < 1 and (equal == wanted).all()
    minima = sketcher.signatures(texts).tolist()
    assert bands.T.tolist() == [reference.band_hashes(row, 2) for row in minima]


def test_signatures_are_of_32_bits_unless_64_are_wanted():
    texts = Texts.of(SCRIPTS)
    short, long = Sketcher().signatures(texts), Sketcher(use_64_bit_hash=True).signatures(texts)
    assert (short.dtype, long.dtype) == (np.uint32, np.uint64)
    equal = [(array[:, None] == array[None, :]).mean(axis=-1) for array in (short, long)]
    assert (equal[0] == equal[1]).all()


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"unit": "byte"}, "'char' or 'word'"),
        ({"method": "slow"}, "'fast' and 'classic'"),
        ({"ngrams": 0}, "ngrams is 0"),
        ({"num_bands": 300}, "can be 2047 at most"),
    ],
)
def test_a_sketcher_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sketcher(**arguments)


def similar_pairs(shared: int, own: int, pairs: int) -> tuple[Texts, float]:
    """Pairs of texts of different words, and the Jaccard similarity of each pair."""
    random = np.random.default_rng(shared * 1000 + own)
    made = []
    for _ in range(pairs):
        words = [f"{value:x}" for value in random.integers(1 << 40, 1 << 50, shared + 2 * own)]
        made += [" ".join(words[: shared + own]), " ".join(words[:shared] + words[shared + own :])]
    return Texts.of(made), shared / (shared + 2 * own)


@pytest.mark.parametrize("method", ["fast", "classic"])
@pytest.mark.parametrize("shared,own", [(16, 2), (45, 5), (70, 15), (80, 10), (600, 60)])
def test_pairs_share_a_band_as_often_as_theory_says(method, shared, own):
    pairs = 4000 if method == "fast" or shared < 100 else 2000
    texts, similarity = similar_pairs(shared, own, pairs)
    sketch = Sketcher(ngrams=1, unit="word", method=method).sketch(texts)
    found = (sketch.bands[:, ::2] == sketch.bands[:, 1::2]).any(axis=0).mean()
    wanted = 1 - (1 - similarity**13) ** 20
    assert abs(found - wanted) < 0.015 + 2 * (wanted * (1 - wanted) / pairs) ** 0.5
    estimated = estimated_jaccard(sketch.small[::2], sketch.small[1::2])
    assert abs(estimated.mean() - similarity) < 0.004


def test_texts_that_have_nothing_in_common_are_estimated_so():
    texts, _ = similar_pairs(0, 50, 300)
    sketch = Sketcher(ngrams=1, unit="word").sketch(texts)
    assert estimated_jaccard(sketch.small[::2], sketch.small[1::2]).mean() < 0.003
    assert estimated_jaccard(sketch.small[0], sketch.small[0]) == 1.0


@pytest.mark.parametrize("unit", ["line", "paragraph"])
@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_pieces_are_those_of_plain_python(unit, strings):
    texts = Texts.of(strings)
    hashes, document, begin, end, size = piece_hashes(texts, unit)
    wanted = [(k, *piece) for k, text in enumerate(strings) for piece in reference.pieces(text, unit)]
    assert document.tolist() == [k for k, *_ in wanted]
    assert (begin - texts.starts[document]).tolist() == [piece[2] for piece in wanted]
    assert (end - texts.starts[document]).tolist() == [piece[3] for piece in wanted]
    assert hashes.tolist() == exact_hashes(Texts.of([piece[1] for piece in wanted])).tolist()
    assert size.tolist() == [len(piece[1].encode()) for piece in wanted]


def test_pieces_are_by_line_or_paragraph():
    with pytest.raises(ValueError, match="'line' or 'paragraph'"):
        piece_hashes(Texts.of(["a"]), "sentence")


def test_a_long_text_of_few_shingles_takes_no_longer_than_another():
    import time

    def seconds(text: str) -> float:
        texts = Texts.of([text])
        began = time.thread_time()
        Sketcher().sketch(texts)
        return time.thread_time() - began

    random = np.random.default_rng(3)
    various = "".join(map(chr, random.integers(97, 123, 400_000).tolist()))
    seconds("a")
    usual = min(seconds(various) for _ in range(3))
    assert min(seconds("ab" * 200_000) for _ in range(3)) < 10 * usual + 0.01


@pytest.mark.parametrize(
    "bad", [b"\xf0\x9f", b"\x80\x80\x80", b"a \xe2\x80", b"\xff\xfe.", b"\xc2", b"abc" * 30 + b"\xe3"]
)
def test_bytes_that_are_no_utf8_crash_nothing_and_nothing_after_them_matters(bad):
    def sketch(behind: bytes) -> list[list[int]]:
        data = np.frombuffer(bad + behind, np.uint8)
        return Sketcher(ngrams=3).sketch(Texts(data, np.array([0]), np.array([len(bad)]))).bands.tolist()

    assert sketch(b"\xa0\xa0\xa0\xa0") == sketch(b"    ") == sketch(b"")
