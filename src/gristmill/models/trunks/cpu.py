"""BERT, RoBERTa and their descendants on CPUs, without padding."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch.nn import functional

from gristmill.lazy import np
from gristmill.models.model import Reads, Trunk
from gristmill.models.tokens import TokenLists, cut
from gristmill.models.trunks.bert_weights import BertLayer, BertWeights
from gristmill.models.trunks.cpu_linear import CpuLinear, cpu_linear
from gristmill.models.trunks.tensors import Config, Linear, Norm

BLOCK_TOKENS = 512
"""Tokens that a thread computes at a time. Sizes from 256 to 4,096 are as fast; small ones share work more evenly."""


@dataclass(frozen=True, slots=True)
class _CpuLayer:
    qkv: CpuLinear
    attended: CpuLinear
    attended_norm: Norm
    grow: CpuLinear
    shrink: CpuLinear
    norm: Norm

    @classmethod
    def of(cls, layer: BertLayer, dtype: torch.dtype) -> _CpuLayer:
        return cls(
            qkv=cpu_linear(layer.qkv, dtype),
            attended=cpu_linear(layer.attended, dtype),
            attended_norm=layer.attended_norm,
            grow=cpu_linear(layer.grow, dtype),
            shrink=cpu_linear(layer.shrink, dtype),
            norm=layer.norm,
        )


@dataclass(frozen=True, slots=True)
class _SameLength:
    """Neighbours of the same length: attention computes them together."""

    texts: slice
    rows: slice
    """Their tokens."""
    count: int
    length: int


class CpuTrunk(Trunk):
    """BERT with absolute positions on CPUs. ``tensors`` are named as in the ``AutoModel`` of transformers.

    Texts are cut into blocks of about `BLOCK_TOKENS` tokens. Each block is computed by one thread, as the blocks of
    different threads need not wait for each other. A text's states do not depend on the texts that it is with.
    ``dtype`` is that of the matrix products; everything else is float32.
    """

    batch_tokens = 32 * BLOCK_TOKENS

    def __init__(
        self, config: Config, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, threads: int | None = None
    ) -> None:
        """``threads``: by default as many as torch would use."""
        self.device = torch.device("cpu")
        weights = BertWeights.of(config, tensors, self.device, torch.float32)
        self.max_tokens = len(weights.positions)
        self.vocabulary = len(weights.words)
        self._heads = weights.heads
        self._words, self._positions, self._words_norm = weights.words, weights.positions, weights.words_norm
        self._layers = [_CpuLayer.of(layer, dtype) for layer in weights.layers]
        queries, others = _split(weights.layers[-1].qkv)
        self._last_queries, self._last_others = cpu_linear(queries, dtype), cpu_linear(others, dtype)
        self._pool = _pool(threads or torch.get_num_threads())

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        blocks = [tokens.take(np.arange(start, stop)) for start, stop in cut(tokens.lengths, 0, BLOCK_TOKENS, None)]
        compute = partial(self._block, reads=reads)
        if self._pool is None or len(blocks) == 1:
            return torch.cat([compute(block) for block in blocks])
        return torch.cat(list(self._pool.map(compute, blocks)))

    def _block(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        """The states of a few texts, computed by this thread."""
        with torch.inference_mode():
            groups = _same_lengths(tokens)
            x = self._embed(tokens, groups)
            for layer in self._layers[:-1]:
                x = self._through(layer, self._attend(layer.qkv(x), groups), x)
            last = self._layers[-1]
            if reads == "all":
                return self._through(last, self._attend(last.qkv(x), groups), x)
            read = torch.from_numpy(tokens.offsets[:-1] if reads == "first" else tokens.offsets[1:] - 1)
            return self._through(last, self._attend_one(x, read, groups), x[read])

    def _embed(self, tokens: TokenLists, groups: list[_SameLength]) -> torch.Tensor:
        x = functional.embedding(torch.from_numpy(tokens.ids), self._words)
        for group in groups:
            x[group.rows].view(group.count, group.length, -1).add_(self._positions[: group.length])
        return _normed(x, self._words_norm)

    def _through(self, layer: _CpuLayer, attended: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The rest of a layer, after its attention."""
        x = _normed(layer.attended.plus(attended, x), layer.attended_norm)
        return _normed(layer.shrink.plus(layer.grow.gelu(x), x), layer.norm)

    def _attend(self, qkv: torch.Tensor, groups: list[_SameLength]) -> torch.Tensor:
        qkv = qkv.float()
        out = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        for group in groups:
            shape = group.count, group.length, 3, self._heads, -1
            q, k, v = qkv[group.rows].view(shape).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            out[group.rows].view(attended.shape).copy_(attended)
        return out

    def _attend_one(self, x: torch.Tensor, read: torch.Tensor, groups: list[_SameLength]) -> torch.Tensor:
        """Attention of the last layer for one token of each text."""
        queries = self._last_queries(x[read]).float()
        others = self._last_others(x).float()
        out = torch.empty_like(queries)
        for group in groups:
            q = queries[group.texts].view(group.count, 1, self._heads, -1).transpose(1, 2)
            k, v = others[group.rows].view(group.count, group.length, 2, self._heads, -1).permute(2, 0, 3, 1, 4)
            out[group.texts] = functional.scaled_dot_product_attention(q, k, v).reshape(group.count, -1)
        return out


def _split(qkv: Linear) -> tuple[Linear, Linear]:
    """The layer of the queries, and that of keys and values."""
    width = len(qkv.weight) // 3
    bias = qkv.bias
    return (
        Linear(qkv.weight[:width], None if bias is None else bias[:width]),
        Linear(qkv.weight[width:], None if bias is None else bias[width:]),
    )


def _normed(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    return functional.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)


def _same_lengths(tokens: TokenLists) -> list[_SameLength]:
    """The runs of texts with one length."""
    lengths = tokens.lengths
    starts = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    return [
        _SameLength(
            slice(start, stop),
            slice(int(tokens.offsets[start]), int(tokens.offsets[stop])),
            stop - start,
            int(lengths[start]),
        )
        for start, stop in pairwise(starts)
    ]


def _pool(threads: int) -> ThreadPoolExecutor | None:
    """Threads in which torch computes without more threads. The number for all others stays as it is."""
    if threads == 1:
        return None
    before = torch.get_num_threads()
    started = threading.Barrier(threads)
    pool = ThreadPoolExecutor(threads, "model", initializer=_compute_alone)
    list(pool.map(lambda _: started.wait(), range(threads)))
    torch.set_num_threads(before)
    return pool


def _compute_alone() -> None:
    torch.get_num_threads()  # otherwise the first computation in this thread takes the number of the process
    torch.set_num_threads(1)
