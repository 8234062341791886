"""Signatures on a GPU: the same to the bit as on the CPU, and how fast, against torch and the memory of the card.

python benchmarks/dedup/gpu.py [documents]

Needs CuPy and a GPU; torch for the comparison with it. The corpus is made here: seeded words, 2.7 KB a document.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill.kernels import gpu_signatures, signatures
from gristmill.kernels.signatures import Sketcher
from gristmill.kernels.texts import Texts

DOCUMENTS = 400_000
DIFFERENT = 20_000
"""Documents that are made; the others repeat them, which makes them neither faster nor slower."""
MEAN_BYTES = 2700
TORCH_DOCUMENTS = 4096
CPU_DOCUMENTS = 10_000
REPEATS = 5


def say(what: str, **values: Any) -> None:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": what, **rounded}), flush=True)


def corpus(documents: int) -> Texts:
    random = np.random.default_rng(11)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = np.array(["".join(random.choice(letters[:20], size)) for size in random.integers(2, 11, 20_000)])
    made = []
    for _ in range(min(documents, DIFFERENT)):
        count = int(MEAN_BYTES / 7 * random.uniform(0.3, 1.7))
        made.append(" ".join(words[(random.random(count) ** 2 * len(words)).astype(np.int64)]).encode())
    times = -(-documents // len(made))
    edges = np.concatenate([[0], np.cumsum(np.tile([len(one) for one in made], times))])[: documents + 1]
    data = np.frombuffer(b"".join(made) * times, np.uint8)[: edges[-1]]
    return Texts(data, np.ascontiguousarray(edges[:-1]), np.ascontiguousarray(edges[1:]))


def odd_texts() -> Texts:
    """Texts that are easily got wrong: many scripts, nothing, little, very much, and few shingles again and again."""
    random = np.random.default_rng(12)
    scripts = [(0x20, 0x7F), (0xC0, 0x17F), (0x400, 0x4FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF), (0x300, 0x36F)]
    made = ["", " ", "x", "漢", "a" * 23, "a" * 24, "a" * 25, "ab" * 5000, "\x00" * 600, "e\u0301" * 2000]
    for size in [1, 2, 5, 23, 24, 25, 40, 100, 300, 511, 512, 513, 1000, 1023, 1024, 1025, 2000, 4096, 9000] * 3:
        for low, high in scripts:
            made.append("".join(map(chr, random.integers(low, high, size).tolist())))
        mixed = [chr(random.integers(*scripts[random.integers(len(scripts))])) for _ in range(size)]
        made.append("".join(mixed))
    made.append("".join(map(chr, random.integers(0x20, 0x7F, 3_000_000).tolist())))
    made.append("".join(map(chr, random.integers(0x4E00, 0x9FFF, 1_000_000).tolist())))
    return Texts.of([made[k] for k in random.permutation(len(made))])


def check(texts: Texts, what: str) -> None:
    same = {"exact": bool((gpu_signatures.exact_hashes(texts, 3) == signatures.exact_hashes(texts, 3)).all())}
    for sketcher in (Sketcher(), Sketcher(ngrams=5, num_bands=50, minhashes_per_band=4, seed=1)):
        found, wanted = gpu_signatures.sketch(sketcher, texts), sketcher.sketch(texts)
        same[f"bands {sketcher.ngrams}"] = bool((found.bands == wanted.bands).all())
        same[f"small {sketcher.ngrams}"] = bool((found.small == wanted.small).all())
    say(f"identity, {what}", documents=len(texts), identical=all(same.values()), **same)


def best(run: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """The shortest time of some, after one that does not count."""
    seconds = []
    for _ in range(REPEATS + 1):
        synchronize()
        began = time.perf_counter()
        run()
        synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def card() -> tuple[float, float]:
    """Bytes a second that the card copies within its memory (read and written), and takes from pinned memory."""
    import cupy

    size = 4 << 30
    a, b = cupy.zeros(size, cupy.uint8), cupy.empty(size, cupy.uint8)
    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    inside = best(lambda: runtime.memcpyAsync(b.data.ptr, a.data.ptr, size, 3, stream.ptr), stream.synchronize)
    part = 1 << 30
    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(part), np.uint8, part)
    pinned[:] = 1
    over = best(lambda: runtime.memcpyAsync(a.data.ptr, pinned.ctypes.data, part, 1, stream.ptr), stream.synchronize)
    cupy.get_default_memory_pool().free_all_blocks()
    return 2 * size / inside, part / over


def kernels_alone(texts: Texts, sketcher: Sketcher) -> dict[str, float]:
    """Seconds for each kernel over all texts, which are on the card already."""
    import cupy

    device = gpu_signatures._device()
    data = cupy.zeros(len(texts.data) + gpu_signatures.PADDING, cupy.uint8)
    data[: len(texts.data)] = cupy.asarray(texts.data)
    text = (data, cupy.asarray(texts.starts), cupy.asarray(texts.ends))
    count = len(texts)
    lists = np.empty(count, np.uint32)
    brief = device.order(texts.ends - texts.starts, lists)
    order = cupy.asarray(lists).view(cupy.uint8)
    out = [
        cupy.empty((sketcher.num_bands, count), cupy.uint64),
        cupy.empty((count, sketcher.num_hashes), cupy.uint8),
        cupy.empty(count, cupy.uint8),
    ]
    hashes, keys, salts = (
        cupy.empty((count, 2), cupy.uint64),
        device.sent(signatures.keys(0)),
        device.sent(sketcher.salts()),
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    return {
        "exact": best(lambda: device.launch_hash(stream, text, count, keys, hashes), stream.synchronize),
        "fast": best(
            lambda: device.launch_sketch(stream, sketcher, text, count, brief, order, salts, out), stream.synchronize
        ),
    }


def torch_minhash(texts: Texts, sketcher: Sketcher) -> float:
    """Seconds that MinHash takes as one would write it in torch, without the way to the card."""
    import torch

    count, width = len(texts), sketcher.ngrams
    random = np.random.default_rng(5)
    numbers = torch.from_numpy(random.integers(-(1 << 63), 1 << 63, (2, sketcher.num_hashes))).cuda() | 1
    lengths = torch.from_numpy(texts.ends - texts.starts).cuda()
    longest = int(lengths.max())
    padded = np.zeros((count, longest), np.uint8)
    for k in range(count):
        padded[k, : texts.ends[k] - texts.starts[k]] = texts.data[texts.starts[k] : texts.ends[k]]
    codes = torch.from_numpy(padded).cuda()
    base = 0x1E3779B97F4A7C15

    def run() -> None:
        for first in range(0, count, 256):
            part = codes[first : first + 256].long()
            windows = longest - width + 1
            shingles = torch.zeros((len(part), windows), dtype=torch.int64, device="cuda")
            for j in range(width):
                shingles = shingles * base + part[:, j : j + windows]
            shingles = (shingles ^ (shingles >> 31)) * 0x3F58476D1CE4E5B9
            behind = torch.arange(windows, device="cuda")[None, :] > (lengths[first : first + 256] - width)[:, None]
            minima = []
            for k in range(0, sketcher.num_hashes, 20):
                values = shingles[:, :, None] * numbers[0, k : k + 20] + numbers[1, k : k + 20]
                values.masked_fill_(behind[:, :, None], (1 << 63) - 1)
                minima.append(values.amin(dim=1))
            rows = torch.cat(minima, dim=1).view(len(part), sketcher.num_bands, sketcher.minhashes_per_band)
            h = torch.zeros(rows.shape[:2], dtype=torch.int64, device="cuda")
            for j in range(sketcher.minhashes_per_band):
                h = h * base + rows[:, :, j]

    return best(run, torch.cuda.synchronize)


def main() -> None:
    warnings.simplefilter("error", RuntimeWarning)  # falling back to the CPU is a failure here
    if not gpu_signatures.available():
        raise SystemExit("there is no GPU here, or no CuPy.")
    import cupy

    documents = int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS
    sketcher = Sketcher()
    check(odd_texts(), "odd texts")
    texts = corpus(documents)
    first = Texts(texts.data, texts.starts[:CPU_DOCUMENTS], texts.ends[:CPU_DOCUMENTS])
    check(first, "corpus")
    size = int((texts.ends - texts.starts).sum())
    inside, over = card()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    say("card", name=name, copy_gb_s=inside / 1e9, pinned_to_card_gb_s=over / 1e9)

    def speed(what: str, seconds: float, count: int = len(texts), bytes_: int = size, **more: Any) -> None:
        rate = bytes_ / seconds
        say(what, documents=count, seconds=seconds, documents_per_s=round(count / seconds), gb_per_s=rate / 1e9, **more)

    for method, seconds in kernels_alone(texts, sketcher).items():
        # read once is all that memory asks for: half of what a copy does
        speed(f"kernel alone, {method}", seconds, share_of_read_bandwidth=size / seconds / inside)
    cupy.get_default_memory_pool().free_all_blocks()
    wait = cupy.cuda.Device().synchronize
    exact = best(lambda: gpu_signatures.exact_hashes(texts), wait)
    speed("end to end, exact", exact, share_of_bus=size / exact / over)
    fast = best(lambda: gpu_signatures.sketch(sketcher, texts), wait)
    speed("end to end, fast", fast, share_of_bus=size / fast / over)

    few, bytes_ = len(first), int((first.ends - first.starts).sum())
    speed("CPU, one thread, exact", best(lambda: signatures.exact_hashes(first), lambda: None), few, bytes_)
    speed("CPU, one thread, fast", best(lambda: sketcher.sketch(first), lambda: None), few, bytes_)
    try:
        import torch  # noqa: F401  # whether it is there
    except ImportError:
        say("torch", error="not installed")
        return
    part = Texts(texts.data, texts.starts[:TORCH_DOCUMENTS], texts.ends[:TORCH_DOCUMENTS])
    few, bytes_ = len(part), int((part.ends - part.starts).sum())
    speed("torch, classic MinHash, texts on the card", torch_minhash(part, sketcher), few, bytes_)


if __name__ == "__main__":
    main()
