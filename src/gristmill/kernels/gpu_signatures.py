"""Exact hashes and sketches on a GPU, identical to those of `signatures` on the CPU. Needs CuPy.

Texts are sent in slabs. While the GPU processes a slab, the next one is sent and the results of the previous one are
fetched. If the GPU fails, a warning is issued and the CPU does the work.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gristmill.kernels import constants, signatures
from gristmill.kernels.signatures import Sketch, Sketcher
from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np

SOURCE = Path(__file__).with_name("signatures.cu")
SLAB = 64 << 20
"""Bytes of text that are sent at a time."""
SLOTS = 3
"""Slabs that are sent, processed or fetched at the same time."""
COPIERS = 4
"""Threads that copy texts to pinned memory: one thread is slower than the bus."""
PIECE = 4 << 20
PADDING = 64
"""Bytes after the texts that the GPU may read."""
TO_DEVICE, TO_HOST = 1, 2
"""CUDA's numbers for the directions."""


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched: threads per text, texts per block, and characters and shingles in shared memory."""

    group: int
    per_block: int
    tile: int
    stored: int

    def shared_bytes(self, places: int) -> int:
        return self.per_block * (8 * places + 8 * self.stored + 4 * self.tile)


SHORT = Shape(group=32, per_block=4, tile=1024, stored=512)
LONG = Shape(group=128, per_block=1, tile=4096, stored=1024)
MOST_ROUNDS = 16
"""For texts whose shingles do not fit. A text that needs more has few, often repeated shingles: the CPU does it."""
MOST_SHARED = 200 << 10


@cache
def available() -> bool:
    """Return whether there is a GPU, and CuPy to use it."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except (ImportError, RuntimeError, OSError):
        return False


def supports(sketcher: Sketcher) -> bool:
    """Return whether a GPU can make these sketches: fast ones of characters."""
    return (
        sketcher.method == "fast"
        and sketcher.unit == "char"
        and 2 * sketcher.ngrams <= LONG.tile - 8 * LONG.group
        and max(one.shared_bytes(sketcher.num_hashes) for one in (SHORT, LONG)) <= MOST_SHARED
    )


def exact_hashes(texts: Texts, seed: int = 0) -> Array:
    """Return the same as `signatures.exact_hashes`."""

    def on_gpu() -> Array:
        out = np.empty((len(texts), 2), np.uint64)
        device = _device()
        with device.lock:
            device.hash(texts, signatures.keys(seed), out)
        return out

    return _or_on_cpu(on_gpu, lambda: signatures.exact_hashes(texts, seed))


def sketch(sketcher: Sketcher, texts: Texts) -> Sketch:
    """Return the same as ``sketcher.sketch(texts)``."""
    if not supports(sketcher):
        return sketcher.sketch(texts)

    def on_gpu() -> Sketch:
        bands = np.empty((sketcher.num_bands, len(texts)), np.uint64)
        small = np.empty((len(texts), sketcher.num_hashes), np.uint8)
        device = _device()
        with device.lock:
            unfinished = device.sketch(sketcher, texts, bands, small)
        rest = np.flatnonzero(unfinished)
        if len(rest):
            done = sketcher.sketch(Texts(texts.data, texts.starts[rest], texts.ends[rest]))
            bands[:, rest], small[rest] = done.bands, done.small
        return Sketch(bands, small)

    return _or_on_cpu(on_gpu, lambda: sketcher.sketch(texts))


def _or_on_cpu(on_gpu: Callable[[], Any], on_cpu: Callable[[], Any]) -> Any:
    try:
        return on_gpu()
    except _trouble() as error:
        _device.cache_clear()
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(f"the GPU cannot be used, the CPU makes the signatures: {text}", RuntimeWarning, stacklevel=3)
        return on_cpu()


def _trouble() -> tuple[type[Exception], ...]:
    """Return the errors of a GPU that is missing, is full, or does not accept the code."""
    kinds: tuple[type[Exception], ...] = (RuntimeError, MemoryError, OSError, ImportError)
    try:
        from cupy.cuda.compiler import CompileException
    except ImportError:
        return kinds
    return (*kinds, CompileException)


def definitions(group: int) -> tuple[str, ...]:
    """Return the compiler options of the source."""
    numbers = vars(constants)
    return (
        f"-DGROUP={group}",
        *(f"-D{name}={numbers[name]:#x}ull" for name in ("MIX_1", "MIX_2", "STEP", "FOLD", "LENGTH")),
        *(f"-D{name}={numbers[name]}" for name in ("ROUND_BITS", "CHUNK_BYTES", "BLOCK_CHUNKS")),
    )


@cache
def _device() -> Device:
    return Device()


@dataclass(frozen=True)
class Slab:
    """Some consecutive texts, and their numbers among all texts."""

    first: int
    last: int
    data: Array
    starts: Array
    ends: Array

    def __len__(self) -> int:
        return self.last - self.first


def slabs(texts: Texts, size: int = SLAB) -> Iterator[Slab]:
    """Yield the texts in slabs of about ``size`` bytes; a longer text has a slab of its own."""
    lengths = texts.ends - texts.starts
    upto = np.cumsum(lengths)
    first = 0
    while first < len(texts):
        before = int(upto[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(upto, before + size, side="right")))
        starts, ends = texts.starts[first:last], texts.ends[first:last]
        low, high, total = int(starts.min()), int(ends.max()), int(upto[last - 1]) - before
        if high - low <= 2 * total + PIECE:
            data = texts.data[low:high]
            yield Slab(first, last, data, starts - low, ends - low)
        else:  # far apart, or in another order
            packed = np.cumsum(ends - starts)
            begins = packed - (ends - starts)
            data = texts.data[np.arange(total) + np.repeat(starts - begins, ends - starts)]
            yield Slab(first, last, data, begins, packed)
        first = last


class Slot:
    """Buffers of a slab on host and device, and the stream on which it is sent, processed and fetched."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._pinned: dict[str, tuple[Any, int]] = {}
        self._device: dict[str, Any] = {}
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.finish: Callable[[], None] | None = None

    def host(self, name: str, shape: tuple[int, ...], kind: Any) -> Array:
        """Return a buffer in pinned memory, which the GPU reads and writes directly."""
        count = math.prod(shape)
        need = count * np.dtype(kind).itemsize
        memory, size = self._pinned.get(name, (None, -1))
        if size < need:
            size = need + need // 4 + PADDING
            memory = self._cupy.cuda.alloc_pinned_memory(size)
            self._pinned[name] = (memory, size)
        found: Array = np.frombuffer(memory, np.uint8, need).view(kind).reshape(shape)
        return found

    def device(self, name: str, bytes_: int) -> Any:
        """Return a buffer of bytes on the device."""
        if name not in self._device or self._device[name].nbytes < bytes_:
            self._device[name] = self._cupy.empty(max(PADDING, bytes_ + bytes_ // 4), np.uint8)
        return self._device[name]

    def send(self, name: str, values: Array, padding: int = 0) -> Any:
        """Start to copy a buffer of the host to the device."""
        there = self.device(name, values.nbytes + padding)
        if values.nbytes:
            self._cupy.cuda.runtime.memcpyAsync(
                there.data.ptr, values.ctypes.data, values.nbytes, TO_DEVICE, self.stream.ptr
            )
        return there

    def fetch(self, there: Any, values: Array) -> None:
        """Start to copy a buffer of the device to the host."""
        if values.nbytes:
            self._cupy.cuda.runtime.memcpyAsync(
                values.ctypes.data, there.data.ptr, values.nbytes, TO_HOST, self.stream.ptr
            )

    def wait(self) -> None:
        """Wait until the slab is done, and store its results."""
        if self.finish is not None:
            self.stream.synchronize()
            self.finish()
            self.finish = None


class Device:
    """A GPU. One call at a time uses it, under its lock."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self.lock = threading.Lock()
        self._slots = [Slot(cupy) for _ in range(SLOTS)]
        self._copiers = ThreadPoolExecutor(COPIERS, thread_name_prefix="gristmill-gpu")
        code = SOURCE.read_text()
        self._modules = {one.group: cupy.RawModule(code=code, options=definitions(one.group)) for one in (SHORT, LONG)}

    def hash(self, texts: Texts, keys: Array, out: Array) -> None:
        there_keys = self.sent(keys)

        def work(slab: Slab, slot: Slot, text: tuple[Any, Any, Any]) -> Callable[[], None]:
            found = slot.host("hashes", (len(slab), 2), np.uint64)
            there = slot.device("hashes", found.nbytes)
            self.launch_hash(slot.stream, text, len(slab), there_keys, there)
            slot.fetch(there, found)

            def finish() -> None:
                out[slab.first : slab.last] = found

            return finish

        self._through(texts, work)

    def sketch(self, sketcher: Sketcher, texts: Texts, bands: Array, small: Array) -> Array:
        """Fill ``bands`` and ``small``. Return which texts were not finished."""
        unfinished = np.zeros(len(texts), np.uint8)
        salts = self.sent(sketcher.salts())

        def work(slab: Slab, slot: Slot, text: tuple[Any, Any, Any]) -> Callable[[], None]:
            count = len(slab)
            lists = slot.host("order", (count,), np.uint32)
            brief = self.order(slab.ends - slab.starts, lists)
            order = slot.send("order", lists)
            found = (
                slot.host("bands", (sketcher.num_bands, count), np.uint64),
                slot.host("small", (count, sketcher.num_hashes), np.uint8),
                slot.host("unfinished", (count,), np.uint8),
            )
            there = [slot.device(f"out {k}", one.nbytes) for k, one in enumerate(found)]
            self.launch_sketch(slot.stream, sketcher, text, count, brief, order, salts, there)
            for from_, to in zip(there, found, strict=True):
                slot.fetch(from_, to)

            def finish() -> None:
                bands[:, slab.first : slab.last] = found[0]
                small[slab.first : slab.last] = found[1]
                unfinished[slab.first : slab.last] = found[2]

            return finish

        self._through(texts, work)
        return unfinished

    def sent(self, values: Array) -> Any:
        """Return a copy on the device, after waiting for it."""
        there = self._cupy.asarray(values)
        self._cupy.cuda.get_current_stream().synchronize()
        return there

    def launch_hash(self, stream: Any, text: tuple[Any, Any, Any], count: int, keys: Any, out: Any) -> None:
        with stream:
            kernel = self._modules[SHORT.group].get_function("hash_texts")
            warps = 8
            kernel(((count + warps - 1) // warps,), (32, warps), (*text, np.uint32(count), keys, out))

    def order(self, lengths: Array, out: Array) -> int:
        """Write the numbers of texts, first those that a warp processes. Return the number of those."""
        brief = lengths <= SHORT.tile
        count = int(brief.sum())
        out[:count], out[count:] = np.flatnonzero(brief), np.flatnonzero(~brief)
        return count

    def launch_sketch(
        self,
        stream: Any,
        sketcher: Sketcher,
        text: tuple[Any, Any, Any],
        count: int,
        brief: int,
        order: Any,
        salts: Any,
        out: list[Any],
    ) -> None:
        """Sketch texts. The first ``brief`` of ``order`` are short; ``out``: bands, small, unfinished."""
        places = sketcher.num_hashes
        with stream:
            self._cupy.cuda.runtime.memsetAsync(out[2].data.ptr, 0, count, stream.ptr)
            for shape, first, last in ((LONG, brief, count), (SHORT, 0, brief)):
                if first == last:
                    continue
                kernel = self._modules[shape.group].get_function("sketch_texts")
                shared = shape.shared_bytes(places)
                if shared > 48 << 10:  # a kernel has as much by default
                    kernel.max_dynamic_shared_size_bytes = shared
                blocks = (last - first + shape.per_block - 1) // shape.per_block
                kernel(
                    (blocks,),
                    (shape.group, shape.per_block),
                    (
                        *text,
                        order[4 * first :],
                        np.uint32(last - first),
                        np.uint32(count),
                        np.int32(sketcher.ngrams),
                        np.uint64(pow(constants.STEP, sketcher.ngrams, 1 << 64)),
                        np.uint64(sketcher.shingle_seed()),
                        salts,
                        np.int32(places),
                        np.int32(sketcher.minhashes_per_band),
                        np.int32(shape.tile),
                        np.int32(shape.stored),
                        np.int32(MOST_ROUNDS),
                        *out,
                    ),
                    shared_mem=shared,
                )

    def _through(self, texts: Texts, work: Callable[[Slab, Slot, tuple[Any, Any, Any]], Callable[[], None]]) -> None:
        """Send the texts in slabs, and start the work on each."""
        for number, slab in enumerate(slabs(texts)):
            slot = self._slots[number % SLOTS]
            slot.wait()
            slot.finish = work(slab, slot, self._send(slab, slot))
        for slot in self._slots:
            slot.wait()

    def _send(self, slab: Slab, slot: Slot) -> tuple[Any, Any, Any]:
        """Start to send the data of a slab, its starts and its ends. Return the buffers on the device."""
        size = len(slab.data)
        here = slot.host("data", (size,), np.uint8)
        there = slot.device("data", size + PADDING)
        copied = [
            self._copiers.submit(np.copyto, here[at : at + PIECE], slab.data[at : at + PIECE])
            for at in range(0, size, PIECE)
        ]
        for at, one in zip(range(0, size, PIECE), copied, strict=True):
            one.result()
            part = here[at : at + PIECE]
            self._cupy.cuda.runtime.memcpyAsync(
                there.data.ptr + at, part.ctypes.data, part.nbytes, TO_DEVICE, slot.stream.ptr
            )
        edges = []
        for name, values in (("starts", slab.starts), ("ends", slab.ends)):
            copy = slot.host(name, (len(slab),), np.int64)
            copy[:] = values
            edges.append(slot.send(name, copy))
        return there, edges[0], edges[1]
