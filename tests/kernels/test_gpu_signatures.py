"""The GPU's source against the CPU's kernels: on a GPU where there is one, and everywhere on a CPU in its place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import text_samples as samples

from gristmill.kernels import constants, gpu_signatures, signatures
from gristmill.kernels.gpu_signatures import LONG, MOST_ROUNDS, PADDING, SHORT, Shape, slabs
from gristmill.kernels.signatures import Sketcher
from gristmill.kernels.texts import Texts

ENTRY = """
typedef unsigned long long u64; typedef long long i64; typedef unsigned int u32; typedef unsigned char u8;
static const u8* data_; static const i64 *starts_, *ends_; static u32 texts_; static const u64* keys_; static u64* out_;
extern "C" void run_hash(const u8* data, const i64* starts, const i64* ends, u32 texts, const u64* keys, u64* out) {
    data_ = data, starts_ = starts, ends_ = ends, texts_ = texts, keys_ = keys, out_ = out;
    launch(32, texts, [] { hash_texts(data_, starts_, ends_, texts_, keys_, out_); });
}
static const u32* order_; static int width_, places_, rows_, tile_, stored_, most_; static u64 power_, seed_;
static u8 *small_, *unfinished_;
extern "C" void run_sketch(
    const u8* data, const i64* starts, const i64* ends, const u32* order, u32 texts, int width, u64 power, u64 seed,
    const u64* salts, int places, int rows, int tile, int stored, int most, u64* bands, u8* small, u8* unfinished) {
    data_ = data, starts_ = starts, ends_ = ends, order_ = order, texts_ = texts, width_ = width, power_ = power;
    seed_ = seed, keys_ = salts, places_ = places, rows_ = rows, tile_ = tile, stored_ = stored, most_ = most;
    out_ = bands, small_ = small, unfinished_ = unfinished;
    launch(GROUP, texts, [] {
        sketch_texts(data_, starts_, ends_, order_, texts_, texts_, width_, power_, seed_, keys_, places_, rows_,
                     tile_, stored_, most_, out_, small_, unfinished_);
    });
}
"""
TEXTS = [
    "",
    "x",
    "short of it",
    "漢字かな交じり文の例です。" * 9,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍🚀 " * 30,
    "e\u0301" * 300,
    "a" * 24,
    "a" * 23,
]
TEXTS += [f"number {k} of the words that follow it here" * (k % 7) for k in range(30)]
TEXTS += ["é" + "long and longer " * 20 + str(k) for k in range(3)]
LONG_TEXTS = [" ".join(map(str, range(900))), "мир и труд " * 400 + "x", "".join(map(chr, range(0x4E00, 0x5E00)))]


def on_cpu(shape: Shape, folder: Path) -> ctypes.CDLL:
    """The source compiled for the CPU."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs g++ on Linux")
    source = gpu_signatures.SOURCE.read_text().replace("extern __shared__ u64 shared_memory[];", "")
    assert "extern __shared__" not in source
    code, library = folder / f"{shape.group}.cpp", folder / f"{shape.group}.so"
    code.write_text(f'#include "{Path(__file__).with_name("cuda_on_cpu.h")}"\n{source}\n{ENTRY}')
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", *gpu_signatures.definitions(shape.group)]
    subprocess.run([compiler, *options, "-o", library, code], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> dict[int, ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("cuda")
    return {shape.group: on_cpu(shape, folder) for shape in (SHORT, LONG)}


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def padded(texts: Texts) -> list[np.ndarray]:
    size = len(texts.data)
    data = np.full((size + PADDING + 7) // 8, 0xEEEEEEEEEEEEEEEE, np.uint64).view(np.uint8)
    data[:size] = texts.data
    return [data, np.ascontiguousarray(texts.starts), np.ascontiguousarray(texts.ends)]


def test_hashes_are_those_of_the_cpu(libraries):
    texts = Texts.of([*TEXTS, *LONG_TEXTS, *("z" * length for length in range(500, 540))])
    out, keys = np.zeros((len(texts), 2), np.uint64), signatures.keys(5)
    buffers = padded(texts)
    libraries[32].run_hash(*map(pointer, buffers), len(texts), pointer(keys), pointer(out))
    assert out.tolist() == signatures.exact_hashes(texts, 5).tolist()


def sketched(library: ctypes.CDLL, shape: Shape, sketcher: Sketcher, texts: Texts) -> tuple[np.ndarray, ...]:
    count, places = len(texts), sketcher.num_hashes
    bands, small = np.zeros((sketcher.num_bands, count), np.uint64), np.zeros((count, places), np.uint8)
    unfinished, order, salts = (
        np.zeros(count, np.uint8),
        np.arange(count, dtype=np.uint32)[::-1].copy(),
        sketcher.salts(),
    )
    buffers = padded(texts)
    library.run_sketch(
        *map(pointer, buffers),
        pointer(order),
        count,
        sketcher.ngrams,
        ctypes.c_uint64(pow(constants.STEP, sketcher.ngrams, 1 << 64)),
        ctypes.c_uint64(sketcher.shingle_seed()),
        pointer(salts),
        places,
        sketcher.minhashes_per_band,
        shape.tile,
        shape.stored,
        MOST_ROUNDS,
        *map(pointer, (bands, small, unfinished)),
    )
    return bands, small, unfinished


@pytest.mark.parametrize("shape", [SHORT, LONG], ids=["warp", "block"])
@pytest.mark.parametrize("ngrams", [1, 24])
def test_sketches_are_those_of_the_cpu(libraries, shape, ngrams):
    sketcher = Sketcher(ngrams=ngrams, num_bands=10, minhashes_per_band=4)
    strings = [text for text in TEXTS if len(text.encode()) <= SHORT.tile]
    strings += LONG_TEXTS if shape is LONG else []
    texts = Texts.of(strings)
    bands, small, unfinished = sketched(libraries[shape.group], shape, sketcher, texts)
    wanted = sketcher.sketch(texts)
    done = unfinished == 0
    assert done.sum() >= len(texts) - 2
    assert (bands[:, done] == wanted.bands[:, done]).all() and (small[done] == wanted.small[done]).all()


def test_a_long_text_of_few_shingles_is_left_to_the_cpu(libraries):
    texts = Texts.of(["ab" * 3000, LONG_TEXTS[0]])
    assert sketched(libraries[128], LONG, Sketcher(), texts)[2].tolist() == [1, 0]


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
def test_slabs_are_all_of_the_texts_in_order(size, monkeypatch):
    monkeypatch.setattr(gpu_signatures, "PIECE", 100)
    whole = Texts.of(TEXTS)
    far_apart = np.array([40, 3, 3, 0, 12, 5])
    for texts in (whole, Texts(whole.data, whole.starts[far_apart], whole.ends[far_apart]), Texts.of([])):
        found = [
            slab.data[start:end].tobytes().decode()
            for slab in slabs(texts, size)
            for start, end in zip(slab.starts, slab.ends, strict=True)
        ]
        assert found == texts.strings()


def test_without_a_gpu_the_cpu_does_it_and_one_warning_is_issued():
    if gpu_signatures.available():
        pytest.skip("there is a GPU")
    texts = Texts.of(TEXTS)
    with pytest.warns(RuntimeWarning, match="the CPU makes the signatures"):
        assert (gpu_signatures.exact_hashes(texts) == signatures.exact_hashes(texts)).all()
    with pytest.warns(RuntimeWarning, match="the CPU makes the signatures"):
        assert (gpu_signatures.sketch(Sketcher(), texts).bands == Sketcher().sketch(texts).bands).all()


def test_the_cpu_makes_sketches_that_no_gpu_can_make_without_a_warning(recwarn):
    texts = Texts.of(samples.real())
    for sketcher in (Sketcher(method="classic"), Sketcher(unit="word", ngrams=3), Sketcher(ngrams=2000)):
        assert not gpu_signatures.supports(sketcher)
        assert (gpu_signatures.sketch(sketcher, texts).bands == sketcher.sketch(texts).bands).all()
    assert not recwarn.list


@pytest.mark.skipif(not gpu_signatures.available(), reason="needs a GPU and CuPy")
def test_on_a_gpu_all_is_as_on_the_cpu(recwarn, monkeypatch):
    monkeypatch.setattr(gpu_signatures, "SLAB", 20_000)
    texts = Texts.of([*TEXTS, *LONG_TEXTS, "ab" * 3000, *samples.real()] * 3)
    assert (gpu_signatures.exact_hashes(texts, 3) == signatures.exact_hashes(texts, 3)).all()
    for sketcher in (Sketcher(), Sketcher(ngrams=3, num_bands=100, minhashes_per_band=17)):
        found, wanted = gpu_signatures.sketch(sketcher, texts), sketcher.sketch(texts)
        assert (found.bands == wanted.bands).all() and (found.small == wanted.small).all()
    assert not recwarn.list
