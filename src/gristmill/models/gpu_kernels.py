"""Triton kernels for packed sequences: disentangled attention, and the element-wise work between matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from gristmill.lazy import np

if TYPE_CHECKING:
    from gristmill.models.tokens import Ints
    from gristmill.models.trunks.relative import PositionWindow
    from gristmill.models.trunks.tensors import Norm

BLOCK = 64
"""Tokens in a tile of queries and in a tile of keys. A tile of queries belongs to one text."""
LOG2_E = 1.4426950408889634


@triton.jit
def _attention(qkv, tiles, out, row, scale, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Attention of one tile of queries of one head over the keys of its text."""
    head = tl.program_id(0)
    tile = tl.program_id(1).to(tl.int64)
    start = tl.load(tiles + tile * 3).to(tl.int64)
    length = tl.load(tiles + tile * 3 + 1)
    i = tl.arange(0, BLOCK)
    d = tl.arange(0, DIM)
    queries = tl.load(tiles + tile * 3 + 2) + i
    base = qkv + start * row + head * DIM
    q = tl.load(base + queries[:, None] * row + d[None, :], mask=queries[:, None] < length, other=0.0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, DIM], tl.float32)
    for first_key in range(0, length, BLOCK):
        keys = first_key + i
        k = tl.load(base + HEADS * DIM + keys[None, :] * row + d[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(base + 2 * HEADS * DIM + keys[:, None] * row + d[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.where(keys[None, :] < length, tl.dot(q, k) * scale, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        best = new_best
    acc = acc / total[:, None]
    to = out + (start + queries)[:, None] * (HEADS * DIM) + head * DIM + d[None, :]
    tl.store(to, acc.to(q.dtype), mask=queries[:, None] < length)


def attention(qkv: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
    """Attention of packed texts. ``qkv`` is (tokens, 3, heads, dim), ``tiles`` is `query_tiles` on the device."""
    tokens, _, heads, dim = qkv.shape
    out = qkv.new_empty(tokens, heads * dim)
    _attention[(heads, len(tiles))](
        qkv, tiles, out, 3 * heads * dim, LOG2_E / math.sqrt(dim),
        HEADS=heads, DIM=dim, BLOCK=BLOCK, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


@triton.jit
def _row(rows, distance, low, near, buckets, origin):
    """The row of the position tables for each distance, less ``low``. Small distances have a row each."""
    if near:
        row = distance + (buckets - low)
    else:
        row = tl.load(rows + (distance + origin)) - low
    return row


@triton.jit
def _disentangled(
    qkv, to_position, from_position, rows, tiles, out,
    row, width, plane, low, buckets, origin, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same with DeBERTa's two terms of relative positions, which were computed for each token and each position.

    Tokens beyond the end of the text are read as its last one, so that no distance is too large.
    """
    head = tl.program_id(0)
    tile = tl.program_id(1).to(tl.int64)
    start = tl.load(tiles + tile * 3).to(tl.int64)
    length = tl.load(tiles + tile * 3 + 1)
    first_query = tl.load(tiles + tile * 3 + 2)
    i = tl.arange(0, BLOCK)
    d = tl.arange(0, DIM)
    queries = first_query + i
    some_queries = tl.minimum(queries, length - 1)
    base = qkv + start * row + head * DIM
    to_position += head.to(tl.int64) * plane + start * width
    from_position += head.to(tl.int64) * plane + start * width
    q = tl.load(base + queries[:, None] * row + d[None, :], mask=queries[:, None] < length, other=0.0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, DIM], tl.float32)
    for first_key in range(0, length, BLOCK):
        keys = first_key + i
        some_keys = tl.minimum(keys, length - 1)
        k = tl.load(base + HEADS * DIM + keys[None, :] * row + d[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(base + 2 * HEADS * DIM + keys[:, None] * row + d[None, :], mask=keys[:, None] < length, other=0.0)
        near = tl.abs(first_query - first_key) <= buckets // 2 - BLOCK
        at = _row(rows, some_queries[:, None] - some_keys[None, :], low, near, buckets, origin)
        to_keys = tl.load(to_position + (some_queries[:, None] * width + at))
        # Keys first: neighbours in memory are then read by neighbours among the threads.
        at = _row(rows, some_queries[None, :] - some_keys[:, None], low, near, buckets, origin)
        from_keys = tl.load(from_position + (some_keys[:, None] * width + at))
        scores = tl.dot(q, k) + to_keys + tl.trans(from_keys)
        scores = tl.where(keys[None, :] < length, scores * scale, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        best = new_best
    acc = acc / total[:, None]
    to = out + (start + queries)[:, None] * (HEADS * DIM) + head * DIM + d[None, :]
    tl.store(to, acc.to(q.dtype), mask=queries[:, None] < length)


def disentangled_attention(
    qkv: torch.Tensor, tiles: torch.Tensor, window: PositionWindow, keys: torch.Tensor, queries: torch.Tensor
) -> torch.Tensor:
    """Attention of packed texts with DeBERTa's relative positions: content to position and position to content.

    ``qkv`` is (tokens, 3, heads, dim). ``keys`` and ``queries`` are the projected position embeddings of the layer,
    (heads, dim, rows).
    """
    tokens, _, heads, dim = qkv.shape
    out = qkv.new_empty(tokens, heads * dim)
    used = slice(window.low, window.low + window.width)
    to_position = torch.bmm(qkv[:, 0].transpose(0, 1), keys[:, :, used])
    from_position = torch.bmm(qkv[:, 1].transpose(0, 1), queries[:, :, used])
    # With more than 168 registers fewer tiles fit a multiprocessor at a time: 20 % slower on an H200.
    _disentangled[(heads, len(tiles))](
        qkv, to_position, from_position, window.rows, tiles, out,
        3 * heads * dim, window.width, tokens * window.width, window.low, window.buckets, window.origin,
        LOG2_E / math.sqrt(3 * dim),
        HEADS=heads, DIM=dim, BLOCK=BLOCK, num_warps=4, num_stages=2, **REGISTERS,
    )  # fmt: skip
    return out


REGISTERS = {"maxnreg": 168} if torch.cuda.is_available() else {}


def query_tiles(offsets: Ints) -> Ints:
    """(first token of the text, its length, first query of the tile) for each tile, the longest texts first."""
    lengths = np.diff(offsets)
    blocks = -(-lengths // BLOCK)
    text = np.repeat(np.arange(len(lengths)), blocks)
    block = np.arange(int(blocks.sum())) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    tiles = np.stack([offsets[:-1][text], lengths[text], block * BLOCK], axis=1)
    return tiles[np.argsort(-lengths[text], kind="stable")].astype(np.int32)


@triton.jit
def _add_norm(x, residual, weight, bias, out, width, eps, BLOCK: tl.constexpr):
    """The layer norm of one row of ``x + residual``."""
    at = tl.program_id(0).to(tl.int64) * width
    i = tl.arange(0, BLOCK)
    inside = i < width
    row = tl.load(x + at + i, mask=inside, other=0.0).to(tl.float32)
    row += tl.load(residual + at + i, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(row, 0) / width
    centred = tl.where(inside, row - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    row = centred * scale * tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    row += tl.load(bias + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at + i, row.to(out.dtype.element_ty), mask=inside)


def add_norm(x: torch.Tensor, residual: torch.Tensor, norm: Norm) -> torch.Tensor:
    """``layer_norm(x + residual)``, written into ``x``."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    _add_norm[(rows,)](
        x, residual, norm.weight, norm.bias, x, width, norm.eps, BLOCK=block, num_warps=1 if block <= 1024 else 4
    )
    return x


@triton.jit
def _embed(
    ids, words, positions, positioned, weight, bias, out, width, eps, HAS_POSITIONS: tl.constexpr, BLOCK: tl.constexpr
):
    """The layer norm of a token's embedding, plus that of its position."""
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < width
    row = tl.load(words + tl.load(ids + token).to(tl.int64) * width + i, mask=inside, other=0.0).to(tl.float32)
    if HAS_POSITIONS:
        row += tl.load(positioned + tl.load(positions + token).to(tl.int64) * width + i, mask=inside, other=0.0)
    mean = tl.sum(row, 0) / width
    centred = tl.where(inside, row - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    row = centred * scale * tl.load(weight + i, mask=inside, other=0.0) + tl.load(bias + i, mask=inside, other=0.0)
    tl.store(out + token * width + i, row.to(out.dtype.element_ty), mask=inside)


def embed(
    ids: torch.Tensor,
    words: torch.Tensor,
    norm: Norm,
    positions: torch.Tensor | None = None,
    positioned: torch.Tensor | None = None,
) -> torch.Tensor:
    """The layer norm of the embeddings of tokens, plus the float32 ones of their positions if the model has these."""
    width = words.shape[1]
    out = words.new_empty(len(ids), width)
    block = triton.next_power_of_2(width)
    _embed[(len(ids),)](
        ids, words, positions, positioned, norm.weight, norm.bias, out, width, norm.eps,
        HAS_POSITIONS=positions is not None, BLOCK=block, num_warps=1 if block <= 1024 else 4,
    )  # fmt: skip
    return out


@triton.jit
def _add_rms_norm(x, residual, weight, out, width, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    """``residual += x``, and the root-mean-square norm of one row of the sum."""
    at = tl.program_id(0).to(tl.int64) * width
    i = tl.arange(0, BLOCK)
    inside = i < width
    row = tl.load(x + at + i, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        row += tl.load(residual + at + i, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at + i, row.to(residual.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    row = row * scale * tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at + i, row.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """The norm of ``x``, or of ``residual + x``, which is also written into ``residual``."""
    rows, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_rms_norm[(rows,)](
        x, residual, weight, out, width, eps, HAS_RESIDUAL=residual is not None, BLOCK=block, num_warps=8
    )
    return out


@triton.jit
def _rotate(x, cosine, sine, positions, row, heads, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Rotate the pairs of numbers in one token's heads by its position."""
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i = tl.arange(0, HALF)
    cos = tl.load(cosine + position * HALF + i)[None, :]
    sin = tl.load(sine + position * HALF + i)[None, :]
    at = x + token * row + h[:, None] * (2 * HALF) + i[None, :]
    inside = h[:, None] < heads
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, (a * cos - b * sin).to(x.dtype.element_ty), mask=inside)
    tl.store(at + HALF, (b * cos + a * sin).to(x.dtype.element_ty), mask=inside)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, positions: torch.Tensor) -> None:
    """Apply rotary positions in place to ``x``, (tokens, heads, dim), a view of rows that may be longer."""
    tokens, heads, dim = x.shape
    grid = (tokens, triton.cdiv(heads, 16))
    _rotate[grid](x, cosine, sine, positions, x.stride(0), heads, BLOCK=16, HALF=dim // 2, num_warps=4)


@triton.jit
def _silu_product(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < width
    gate = tl.load(x + row * 2 * width + i, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + row * 2 * width + width + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + i, (gate * tl.sigmoid(gate) * value).to(out.dtype.element_ty), mask=inside)


def silu_product(x: torch.Tensor) -> torch.Tensor:
    """``silu(x[:, :half]) * x[:, half:]``."""
    rows, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, width)
    _silu_product[(rows, triton.cdiv(width, 4096))](x, out, width, BLOCK=4096, num_warps=8)
    return out
