"""Continuous batching on one GPU against plain `generate`: output tokens per second, and how busy the GPU is.

    python benchmarks/llm/gpu.py [--requests 2048] [--slots 256] [--small]

The model has the shape of Qwen2.5-1.5B and random weights, so no answer ends by itself: the most tokens of each request
decide, which are lognormal between 16 and 1,024. `generate` gets batches sorted by these numbers, and each runs to its
longest; its output counts up to the number of each request. Both get the same prompts and choose the most probable
token, so their outputs are compared. ``--small`` is a model for a machine without a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import threading
import time
from typing import Any

import torch

from gristmill.llm.local.backend import LocalBackend
from gristmill.llm.requests import Request

LARGE = dict(
    vocab_size=151_936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    max_position_embeddings=32_768,
    tie_word_embeddings=True,
)
SMALL = dict(
    vocab_size=1000,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)


class Numbers:
    """A tokenizer whose texts are numbers: prompts are ids of tokens already."""

    eos_token_id = None
    chat_template = None

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def decode(self, tokens: list[int], **options: Any) -> str:
        return " ".join(map(str, tokens))


class Usage(threading.Thread):
    """Samples the share of time in which the GPU computes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        if not torch.cuda.is_available():
            return
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self.done.wait(0.1):
            self.samples.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    def share(self) -> float | None:
        self.done.set()
        return round(sum(self.samples) / len(self.samples) / 100, 3) if self.samples else None


def made(options: argparse.Namespace) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(**(SMALL if options.small else LARGE), eos_token_id=None, bos_token_id=None)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    with torch.device(device):
        model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def work(options: argparse.Namespace) -> list[tuple[list[int], int]]:
    """Prompts, and the most tokens of each answer."""
    number = random.Random(options.seed)
    vocabulary = SMALL["vocab_size"] if options.small else LARGE["vocab_size"]
    top = 128 if options.small else 1024
    found = []
    for _ in range(options.requests):
        most = int(min(top, max(16, math.exp(number.gauss(math.log(160), 1.0)))))
        prompt = [number.randrange(10, int(vocabulary)) for _ in range(number.randrange(32, 256))]
        found.append((prompt, most))
    return found


def plain(model: Any, requests: list[tuple[list[int], int]], size: int) -> list[list[int]]:
    """`generate` in batches sorted by the length of the answer."""
    order = sorted(range(len(requests)), key=lambda n: -requests[n][1])
    answers: list[list[int]] = [[]] * len(requests)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        longest = max(len(requests[n][0]) for n in rows)
        ids = torch.zeros((len(rows), longest), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, n in enumerate(rows):
            prompt = requests[n][0]
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        with torch.inference_mode():
            out = model.generate(
                ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=max(requests[n][1] for n in rows),
                do_sample=False,
            )
        for row, n in enumerate(rows):
            answers[n] = out[row, longest : longest + requests[n][1]].tolist()
    return answers


def ours(model: Any, requests: list[tuple[list[int], int]], slots: int) -> tuple[list[list[int]], dict[str, Any]]:
    """The back end of gristmill, with twice as many requests in flight as slots."""
    longest = 512 if model.config.vocab_size <= 1000 else 1536

    async def main() -> tuple[list[list[int]], dict[str, Any]]:
        backend = LocalBackend("random", lambda: (model, Numbers()), slots, longest, ends=frozenset({-1}))
        await backend.open()
        limit = asyncio.Semaphore(2 * slots)

        async def one(prompt: list[int], most: int) -> list[int]:
            async with limit:
                request = Request(
                    prompt=" ".join(map(str, prompt)), parameters={"max_tokens": most, "temperature": 0.0}
                )
                return [int(word) for word in (await backend.complete(request)).text.split()]

        found = await asyncio.gather(*(one(*request) for request in requests))
        engine = backend.engine
        facts = {"steps": engine.steps, "slots_used": round(engine.slot_steps / max(1, engine.steps), 1)}
        await backend.close()
        return list(found), facts

    return asyncio.run(main())


def measured(run: Any, tokens: int) -> tuple[Any, dict[str, Any]]:
    usage = Usage()
    usage.start()
    begun = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - begun
    return found, {"s": round(seconds, 2), "tokens_per_s": round(tokens / seconds), "gpu_busy": usage.share()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256, help="of plain generate")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = made(options)
    requests = work(options)
    tokens = sum(most for _, most in requests)
    facts = {"benchmark": "llm gpu", "requests": len(requests), "tokens": tokens, "slots": options.slots}
    print(json.dumps(facts), flush=True)
    plain(model, [(prompt, 16) for prompt, _ in requests[: options.batch]], options.batch)  # warm up
    theirs, before = measured(lambda: plain(model, requests, options.batch), tokens)
    print(json.dumps({"generate in sorted batches": before}), flush=True)
    ours(model, [(prompt, min(most, 64)) for prompt, most in requests[: options.slots]], options.slots)  # warm up
    (mine, engine), after = measured(lambda: ours(model, requests, options.slots), tokens)
    same = sum(a == b for a, b in zip(mine, theirs, strict=True)) / len(requests)
    first = sum(a[:8] == b[:8] for a, b in zip(mine, theirs, strict=True)) / len(requests)
    shares = {"same_answers": round(same, 3), "same_first_8_tokens": round(first, 3)}
    print(json.dumps({"gristmill": after, **engine, **shares}), flush=True)
    print(json.dumps({"times_faster": round(after["tokens_per_s"] / before["tokens_per_s"], 2)}), flush=True)


if __name__ == "__main__":
    main()
