"""Models alone on one GPU: documents per second of gristmill's packed models and of the usual ways to run them.

    python benchmarks/models/gpu.py deberta minilm llama
    python benchmarks/models/gpu.py deberta --disentangled-flash FOLDER     # where that package lies, if not installed
    python benchmarks/models/gpu.py deberta minilm --compiled               # also what torch.compile makes of them

All rows of a table are measured in one run on the same documents. Times are the best of two or three passes after one
to warm up, with the copies of tokens and results. Errors are the largest ones of any logit, or the smallest cosine,
against the model in float32 on 512 documents; labels are compared on 2,000.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from documents import deberta, documents, llama, minilm

from gristmill.models.engine import InferenceEngine
from gristmill.models.model import Head, Model
from gristmill.models.tokens import TokenLists, cut
from gristmill.models.trunks.bert import BertTrunk
from gristmill.models.trunks.deberta import DebertaTrunk
from gristmill.models.trunks.llama import LlamaTrunk

DEVICE = torch.device("cuda")
Rows = np.ndarray[Any, Any]


@dataclass
class Bench:
    """The documents of a table, and what its first row said of them."""

    docs: TokenLists
    reference: Rows | None = None
    cosine: bool = False

    def row(self, name: str, run: Callable[[TokenLists], Rows], passes: int = 3) -> float:
        """Measure one way to run the model. Return its seconds."""
        if passes > 1:
            run(self.docs)
        seconds = []
        for _ in range(passes):
            torch.cuda.synchronize()
            start = time.perf_counter()
            rows = run(self.docs)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        best = min(seconds)
        spread = f"{len(self.docs) / max(seconds):,.0f}-{len(self.docs) / best:,.0f}"
        print(f"{name:58} {len(self.docs) / best:10,.0f} docs/s  ({spread})  {self._against(rows)}", flush=True)
        return best

    def _against(self, rows: Rows) -> str:
        if self.reference is None:
            return ""
        some = min(len(rows), len(self.reference))
        want, got = self.reference[:some], rows[:some]
        if self.cosine:
            return f"smallest cosine {(want * got).sum(1).min():.6f}"
        same = (want.argmax(1) == got.argmax(1)).mean()
        return f"largest error {np.abs(want - got)[:512].max():.4f}, labels equal {same:.2%} of {some:,}"


def padded(docs: TokenLists, order: Sequence[int], batches: Iterator[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    """(ids, mask, positions of the documents) of each batch, padded to its longest document, on the GPU."""
    for start, stop in batches:
        chosen = order[start:stop]
        part = docs.take(chosen)
        longest = int(part.lengths.max())
        mask = np.arange(longest) < part.lengths[:, None]
        ids = np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = part.ids
        yield torch.from_numpy(ids).pin_memory().cuda(non_blocking=True), torch.from_numpy(mask).cuda(), chosen


def hugging_face(
    model: torch.nn.Module,
    budget: int | None,
    dtype: torch.dtype | None,
    finish: Callable[[Any, torch.Tensor], torch.Tensor],
    in_order: bool = False,
) -> Callable[[TokenLists], Rows]:
    """The model as it comes, padded. ``budget`` counts padded tokens; None is batches of 256 documents."""

    def run(docs: TokenLists) -> Rows:
        order = np.arange(len(docs)) if in_order else np.argsort(-docs.lengths, kind="stable")
        if budget is None:
            cuts = iter((i, min(i + 256, len(docs))) for i in range(0, len(docs), 256))
        else:
            cuts = _padded_cuts(docs.lengths[order], budget)
        parts, places = [], []
        with torch.inference_mode(), torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            for ids, mask, chosen in padded(docs, order, cuts):
                parts.append(finish(model(input_ids=ids, attention_mask=mask), mask).float())
                places.append(chosen)
        rows = torch.cat(parts).cpu().numpy()
        out = np.empty_like(rows)
        out[np.concatenate(places)] = rows
        return out

    return run


def _padded_cuts(lengths: Any, budget: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(lengths):
        stop = min(start + max(1, budget // int(lengths[start])), len(lengths))
        yield start, stop
        start = stop


def logits(output: Any, mask: torch.Tensor) -> torch.Tensor:
    return output.logits


def mean(output: Any, mask: torch.Tensor) -> torch.Tensor:
    states = output.last_hidden_state.float() * mask[:, :, None]
    return torch.nn.functional.normalize(states.sum(1) / mask.sum(1, keepdim=True))


class ContextPooler(Head):
    """The head that DeBERTa classifies with."""

    reads = "first"

    def __init__(self, model: Any) -> None:
        self.model, self.width = model, model.config.num_labels
        self.weights = [
            model.pooler.dense.weight, model.pooler.dense.bias, model.classifier.weight, model.classifier.bias
        ]  # fmt: skip

    def to(self, device: torch.device, dtype: torch.dtype) -> ContextPooler:
        self.weights = [each.to(device, dtype) for each in self.weights]
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        a, b, c, d = self.weights
        pooled = torch.nn.functional.gelu(torch.nn.functional.linear(hidden, a, b))
        return torch.nn.functional.linear(pooled, c, d).float()


class NormalizedMean(Head):
    reads = "all"

    def __init__(self, width: int) -> None:
        self.width = width

    def to(self, device: torch.device, dtype: torch.dtype) -> NormalizedMean:
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(segment_mean(hidden, offsets))


class Score(Head):
    reads = "last"

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight, self.width = weight, len(weight)

    def to(self, device: torch.device, dtype: torch.dtype) -> Score:
        self.weight = self.weight.to(device, dtype)
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(hidden, self.weight).float()


def segment_mean(hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.segment_reduce(hidden.float(), "mean", offsets=offsets, axis=0)


def profile(engine: InferenceEngine, docs: TokenLists) -> None:
    """Print the kernels of a pass, and the time in which the GPU ran none."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as found:
        engine.run(docs)
    rows = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    total = sum(one.self_device_time_total for one in rows)
    print(f"    kernels: {total / 1e3:.1f} ms")
    for one in rows[:14]:
        print(f"    {one.self_device_time_total / total:6.1%} {one.count:5d} {one.key[:110]}")
    sys.stdout.flush()


def deberta_table(arguments: argparse.Namespace) -> None:
    model = deberta(DEVICE)
    docs = documents(4096, 128_000)
    print(f"\nDeBERTa-v3-base, 3 labels: 4,096 documents, {docs.offsets[-1]:,} tokens")
    bench = Bench(docs)
    exact = hugging_face(model, 16_384, None, logits)
    bench.reference = exact(docs.take(range(2000)))
    bench.row("transformers, fp32, batches of 256 as they come", hugging_face(model, None, None, logits, True), 1)
    bench.row(
        "transformers, sorted, autocast, batches of 256 (as NeMo Curator)",
        hugging_face(model, None, torch.float16, logits),
        2,
    )
    half = deberta(DEVICE).to(torch.bfloat16)
    bench.row("transformers, bf16, token budget 65,536", hugging_face(half, 65_536, None, logits), 2)
    if arguments.disentangled_flash is not None:
        sys.path.insert(0, arguments.disentangled_flash)
        for dtype in (torch.bfloat16, torch.float16):
            bench.row(f"disentangled-flash, packed, sorted, 65,536, {dtype}", _disentangled_flash(dtype))
    config, tensors = model.config.to_dict(), model.deberta.state_dict()
    for dtype in (torch.bfloat16, torch.float16):
        trunk = DebertaTrunk(config, tensors, DEVICE, dtype)
        engine = InferenceEngine(Model(trunk, ContextPooler(model).to(DEVICE, dtype)), token_budget=65_536)
        bench.row(f"gristmill, {dtype}, 65,536", engine.run)
    if arguments.profile:
        profile(engine, docs)
    for most, budget in ((256, 65_536), (None, 16_384), (None, 131_072)):
        engine = InferenceEngine(engine.model, max_batch=most, token_budget=budget)
        bench.row(f"gristmill, {dtype}, {budget:,}, at most {most} texts", engine.run)
    if arguments.compiled:
        compiled = torch.compile(half, dynamic=True)
        bench.row("transformers, bf16, token budget 65,536, compiled", hugging_face(compiled, 65_536, None, logits))


def _disentangled_flash(dtype: torch.dtype) -> Callable[[TokenLists], Rows]:
    from disentangled_flash import PackedSequenceInfo, enable_deberta_inference

    model = deberta(DEVICE).to(dtype)
    encoder_owner = model.deberta
    enable_deberta_inference(encoder_owner)

    def run(docs: TokenLists) -> Rows:
        order = np.argsort(-docs.lengths, kind="stable")
        parts = []
        with torch.inference_mode():
            for start, stop in cut(docs.lengths[order], 0, 65_536, None):
                part = docs.take(order[start:stop])
                ids = torch.from_numpy(part.ids.astype(np.int64)).pin_memory().cuda(non_blocking=True)
                ends = torch.from_numpy(part.offsets.astype(np.int32)).cuda(non_blocking=True)
                lengths = tuple(int(n) for n in part.lengths)
                info = PackedSequenceInfo(tuple(int(n) for n in part.offsets), lengths, max(lengths))
                embedded = encoder_owner.embeddings(input_ids=ids[None])[0]
                states = encoder_owner.encoder.forward_packed(
                    embedded, ends, info.max_seqlen, packed_info=info, output_hidden_states=False
                ).last_hidden_state
                first = states[ends[:-1].long()][:, None]
                parts.append(model.classifier(model.pooler(first)).float())
        rows = torch.cat(parts).cpu().numpy()
        out = np.empty_like(rows)
        out[order] = rows
        return out

    return run


def minilm_table(arguments: argparse.Namespace) -> None:
    model = minilm(DEVICE)
    docs = documents(16_384, 30_000)
    print(f"\nMiniLM, 6 x 384, mean pooling: 16,384 documents, {docs.offsets[-1]:,} tokens")
    bench = Bench(docs, cosine=True)
    bench.reference = hugging_face(model, 65_536, None, mean)(docs.take(range(2000)))
    bench.row("transformers, fp32, batches of 256 as they come", hugging_face(model, None, None, mean, True), 1)
    half = minilm(DEVICE).to(torch.bfloat16)
    bench.row("transformers, bf16, token budget 262,144", hugging_face(half, 262_144, None, mean))
    config, tensors = model.config.to_dict(), model.state_dict()
    for dtype in (torch.bfloat16, torch.float16):
        trunk = BertTrunk(config, tensors, DEVICE, dtype)
        for budget in (65_536, 262_144):
            engine = InferenceEngine(Model(trunk, NormalizedMean(384)), token_budget=budget)
            bench.row(f"gristmill, {dtype}, {budget:,}", engine.run)
    if arguments.profile:
        profile(engine, docs)
    if arguments.compiled:
        bench.row("varlen_attn, packed, bf16, compiled, 262,144", _varlen(half))


def _varlen(model: Any) -> Callable[[TokenLists], Rows]:
    """BERT of plain PyTorch operations on packed texts, compiled."""
    from torch.nn.attention.varlen import varlen_attn
    from torch.nn.functional import gelu, normalize

    heads = model.config.num_attention_heads

    def states(ids: torch.Tensor, positions: torch.Tensor, ends: torch.Tensor, longest: int) -> torch.Tensor:
        table = model.embeddings
        x = table.word_embeddings(ids) + table.position_embeddings(positions) + table.token_type_embeddings.weight[0]
        x = table.LayerNorm(x)
        for layer in model.encoder.layer:
            own = layer.attention.self
            q, k, v = (one(x).view(len(x), heads, -1) for one in (own.query, own.key, own.value))
            attended = varlen_attn(q, k, v, ends, ends, longest, longest).reshape(len(x), -1)
            x = layer.attention.output.LayerNorm(layer.attention.output.dense(attended) + x)
            x = layer.output.LayerNorm(layer.output.dense(gelu(layer.intermediate.dense(x))) + x)
        return x

    compiled = torch.compile(states, dynamic=True)

    def run(docs: TokenLists) -> Rows:
        order = np.argsort(-docs.lengths, kind="stable")
        parts = []
        with torch.inference_mode():
            for start, stop in cut(docs.lengths[order], 0, 262_144, None):
                part = docs.take(order[start:stop])
                at = np.arange(len(part.ids)) - np.repeat(part.offsets[:-1], part.lengths)
                ids, positions, ends = (
                    torch.from_numpy(x).pin_memory().cuda(non_blocking=True) for x in (part.ids, at, part.offsets)
                )
                found = compiled(ids, positions, ends.int(), 512)
                parts.append(normalize(segment_mean(found, ends)))
        rows = torch.cat(parts).cpu().numpy()
        out = np.empty_like(rows)
        out[order] = rows
        return out

    return run


def llama_table(arguments: argparse.Namespace) -> None:
    model = llama(DEVICE)
    config = model.config
    print("\n7B Llama, bf16, 2 labels")
    weights = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008)

    def teraflops(docs: TokenLists, seconds: float) -> str:
        lengths = docs.lengths.astype(float)
        work = 2 * weights * lengths.sum() + 2 * 4096 * 32 * (lengths**2).sum()
        return f"    {work / seconds / 1e12:.0f} TFLOP/s of real tokens"

    full = TokenLists(documents(64, 32_000).ids[: 32 * 512], np.arange(33, dtype=np.int64) * 512)
    bench = Bench(full)
    seconds = bench.row("transformers, 32 x 512 tokens", hugging_face(model, 16_384, None, logits))
    print(teraflops(full, seconds))
    docs = documents(512, 32_000)
    mixed = Bench(docs)
    mixed.reference = hugging_face(model, 16_384, None, logits)(docs)
    seconds = mixed.row("transformers, mixed lengths, token budget 16,384", hugging_face(model, 16_384, None, logits))
    print(teraflops(docs, seconds))
    trunk = LlamaTrunk(config.to_dict(), model.model.state_dict(), DEVICE, torch.bfloat16)
    engine = InferenceEngine(Model(trunk, Score(model.score.weight)), token_budget=32_768)
    seconds = mixed.row("gristmill, mixed lengths, 32,768", engine.run)
    print(teraflops(docs, seconds))
    if arguments.profile:
        profile(engine, docs)
    prefix = documents(2, 32_000, seed=1)
    begin = TokenLists(np.tile(prefix.ids, 9)[:600], np.array([0, 600]))
    trunk = LlamaTrunk(config.to_dict(), model.model.state_dict(), DEVICE, torch.bfloat16, begin)
    engine = InferenceEngine(Model(trunk, Score(model.score.weight)), token_budget=32_768)
    Bench(docs).row("gristmill, after a prefix of 600 tokens, computed once", engine.run)


def main() -> None:
    tables = {"deberta": deberta_table, "minilm": minilm_table, "llama": llama_table}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=tables)
    parser.add_argument("--disentangled-flash", metavar="FOLDER", help="the folder of an unpacked wheel")
    parser.add_argument("--compiled", action="store_true", help="compile, which takes minutes")
    parser.add_argument(
        "--profile", action="store_true", help="print the kernels that take the time of gristmill's model"
    )
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), f"torch {torch.__version__}")
    for name in arguments.tables:
        tables[name](arguments)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
