"""The engine of vLLM in this process, as a back end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.llm.backend import Backend
from gristmill.llm.errors import Refused, TryAgain, Unusable
from gristmill.llm.requests import Answer, Request

_NAMES = {"max_completion_tokens": "max_tokens"}


@dataclass
class VLLMBackend(Backend):
    """A model of vLLM, with continuous batching and constrained answers of its own."""

    name: str
    options: Mapping[str, Any]

    constrains = True

    def __post_init__(self) -> None:
        self._engine: Any = None
        self._numbers = itertools.count()

    @property
    def model(self) -> str:
        return self.name

    async def open(self) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=self.name, **self.options))
        except (ValueError, OSError, RuntimeError) as error:
            raise Unusable(f"vLLM cannot load {self.name!r}: {error}") from None

    async def complete(self, request: Request) -> Answer:
        begun = time.monotonic()
        last: Any = None
        try:
            name = f"gristmill-{next(self._numbers)}"
            async for part in self._engine.generate(await self._prompt(request), self._settings(request), name):
                last = part
        except ValueError as error:
            raise Refused(f"vLLM refuses the request: {error}") from None
        if last is None:
            raise TryAgain("vLLM gave no answer")
        made = last.outputs[0]
        reason = "length" if made.finish_reason == "length" else "stop"
        counts = len(last.prompt_token_ids or ()), len(made.token_ids)
        return Answer(made.text, reason, *counts, time.monotonic() - begun)

    async def _prompt(self, request: Request) -> str:
        if request.messages is None:
            return request.prompt
        messages = [dict(message) for message in request.messages]
        if any(not isinstance(message.get("content"), str) for message in messages):
            raise Refused("images need an Endpoint")
        tokenizer = await self._engine.get_tokenizer()
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _settings(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        given = {_NAMES.get(name, name): value for name, value in request.parameters.items()}
        if request.schema is not None:
            given["structured_outputs"] = StructuredOutputsParams(json=dict(request.schema))
        return SamplingParams(**given)

    async def close(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None
