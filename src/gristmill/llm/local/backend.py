"""A checkpoint of transformers in this process, as a back end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from gristmill.llm.backend import Backend
from gristmill.llm.errors import Refused
from gristmill.llm.local.engine import LocalEngine, LocalRequest
from gristmill.llm.local.sampling import Settings
from gristmill.llm.local.slots import SlotModel, head_size
from gristmill.llm.requests import Answer, Request

DEFAULT_TOKENS = 256
KNOWN = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed")
_CHAT = "<|im_start|>{role}\n{content}<|im_end|>\n"
_CHAT_END = "<|im_start|>assistant\n"
"""The format of Qwen, for checkpoints without a template."""
_MEMORY_SHARE = 0.6
"""Of the free memory of a GPU, for keys and values."""


@dataclass
class LocalBackend(Backend):
    """A causal language model. ``load`` returns the model and its tokenizer."""

    name: str
    load: Callable[[], tuple[Any, Any]]
    slots: int = 256
    longest: int = 4096
    ends: frozenset[int] | None = None
    """The tokens that end an answer, in place of those of the checkpoint."""

    constrains = True

    def __post_init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._tokenizer: Any = None
        self._end_tokens: frozenset[int] = frozenset()

    @property
    def model(self) -> str:
        return self.name

    @property
    def engine(self) -> LocalEngine:
        """The engine, once it is open."""
        assert self._engine is not None, "open() comes first"
        return self._engine

    async def open(self) -> None:
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        model, self._tokenizer = self.load()
        self._end_tokens = _ends(model, self._tokenizer) if self.ends is None else self.ends
        config = model.config.get_text_config()
        longest = min(self.longest, config.max_position_embeddings)
        slots = fitting_slots(model, self.slots, longest)
        self._engine = LocalEngine(SlotModel(model, slots, longest), self._tokenizer, self._end_tokens)

    async def complete(self, request: Request) -> Answer:
        begun = time.monotonic()
        parameters = request.parameters
        if unknown := sorted(set(parameters) - set(KNOWN)):
            raise Refused(f"models in the process do not know {', '.join(unknown)}; they know {', '.join(KNOWN)}")
        most = int(parameters.get("max_tokens") or parameters.get("max_completion_tokens") or DEFAULT_TOKENS)
        seed = parameters.get("seed")
        number = int.from_bytes(request.key(self.name)[:4], "big") if seed is None else int(seed) + request.sample
        temperature = parameters.get("temperature")
        settings = Settings(
            1.0 if temperature is None else float(temperature), float(parameters.get("top_p") or 1.0), number
        )
        prompt = self._tokens(request)
        future: Future[list[int]] = Future()
        job = LocalRequest(prompt, most, settings, request.schema, future)
        self.engine.submit(job)
        tokens = await asyncio.wrap_future(future)
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        reason = "stop" if job.is_complete else "length"
        return Answer(text, reason, len(prompt), len(tokens), time.monotonic() - begun)

    def _tokens(self, request: Request) -> list[int]:
        if request.messages is None:
            ids: list[int] = self._tokenizer(request.prompt)["input_ids"]
            return ids or [min(self._end_tokens)]
        messages = [dict(message) for message in request.messages]
        if any(not isinstance(message.get("content"), str) for message in messages):
            raise Refused("models in the process take no images")
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        else:
            text = "".join(_CHAT.format(**message) for message in messages) + _CHAT_END
        chat: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return chat

    async def close(self) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)
            self._engine = None


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    given = model.generation_config.eos_token_id
    found = given if isinstance(given, list) else [given]
    ends = {int(token) for token in [*found, tokenizer.eos_token_id] if token is not None}
    if not ends:
        raise Refused("the tokenizer of the model has no token that ends an answer")
    return frozenset(ends)


def fitting_slots(model: Any, most: int, longest: int) -> int:
    """How many slots fit into the memory of the GPU, at most ``most``."""
    import torch

    if model.device.type != "cuda":
        return min(most, 32)
    config = model.config.get_text_config()
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size(config) * longest
    free, _ = torch.cuda.mem_get_info(model.device)
    size: int = numbers * torch.empty(0, dtype=model.dtype).element_size()
    return max(1, min(most, int(free * _MEMORY_SHARE) // size))


def loader(name: str, device: str, dtype: str, options: Mapping[str, Any]) -> Callable[[], tuple[Any, Any]]:
    """Return what loads a checkpoint: a folder, or a repository on the Hugging Face hub."""

    def load() -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        kind = {"auto": torch.bfloat16 if device == "cuda" else torch.float32}.get(dtype) or getattr(torch, dtype)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=kind, **options)
        return model.to(device), tokenizer

    return load
