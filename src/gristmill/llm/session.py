"""A model that is ready to answer: its client, its server if the run started one, and answers that match a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gristmill.llm import usage as names
from gristmill.llm.client import Client
from gristmill.llm.errors import BadAnswer, Refused
from gristmill.llm.http import HttpBackend
from gristmill.llm.prompts import instructed
from gristmill.llm.requests import Answer, Request
from gristmill.llm.server import RunningServer
from gristmill.llm.structured import PROBE_PROMPT, PROBE_SCHEMA, Schema, repair_words
from gristmill.llm.usage import Usage
from gristmill.logs import logger

WAYS = ("auto", "response_format", "prompt")
"""How a model that is reached over HTTP gets a schema."""
_PROBE = {"max_tokens": 64, "temperature": 0.0}


class Session:
    """Answers requests in one event loop, from `open` to `close`."""

    def __init__(self, client: Client, server: RunningServer | None = None, way: str = "auto") -> None:
        self.client = client
        self._server = server
        self._way = "response_format" if client.backend.constrains else way
        self._probing = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Start the server if there is one, and connect. Raise `Unusable` if that fails."""
        self._loop = asyncio.get_running_loop()
        backend = self.client.backend
        if self._server is not None:
            await self._server.start()
            assert isinstance(backend, HttpBackend)
            backend.base_url = self._server.base_url
        await backend.open()

    async def text(self, request: Request, used: Usage, rank: int = 0) -> str:
        """Return the text of an answer."""
        return (await self._asked(request, used, rank)).text

    async def value(self, request: Request, schema: Schema, used: Usage, rank: int = 0) -> Any:
        """Return the value of an answer that matches a schema. Ask once more if the first one does not.

        Raise `BadAnswer` with the first answer if the second one does not match either.
        """
        request = await self._with_schema(request, schema, used)
        answer = await self._asked(request, used, rank)
        try:
            return schema.parsed(answer.text)
        except BadAnswer as error:
            first = error
        used.add(names.REPAIRS)
        again = await self._asked(request.followed_by(answer.text, repair_words(str(first))), used, rank)
        try:
            return schema.parsed(again.text)
        except BadAnswer as error:
            raise BadAnswer(f"{first}; asked again: {error}", f"{first.raw}\n{error.raw}") from None

    async def flush(self) -> None:
        """Return when all answers so far are on the disk."""
        await self.client.flush()

    async def _asked(self, request: Request, used: Usage, rank: int) -> Answer:
        if self._server is not None and self._server.failed is not None:
            raise self._server.failed
        return await self.client.ask(request, used, rank)

    async def _with_schema(self, request: Request, schema: Schema, used: Usage) -> Request:
        if self._way == "auto":
            async with self._probing:
                if self._way == "auto":
                    self._way = await self._found_way(request, used)
        if self._way == "response_format":
            return replace(request, schema=schema.schema)
        if request.messages is None:
            return replace(request, prompt=f"{schema.instruction()}\n\n{request.prompt}")
        return replace(request, messages=instructed(request.messages, schema.instruction()))

    async def _found_way(self, request: Request, used: Usage) -> str:
        """Find out whether the server uses ``response_format``: ask for an object that no model writes by itself."""
        messages = None if request.messages is None else [{"role": "user", "content": PROBE_PROMPT}]
        parameters: Mapping[str, Any] = _PROBE
        probe = Request(messages=messages, prompt=PROBE_PROMPT, parameters=parameters, schema=PROBE_SCHEMA)
        try:
            answer = await self._asked(probe, used, -1)
            Schema(PROBE_SCHEMA).parsed(answer.text)
        except Refused as error:
            why = f"refuses response_format ({error})"
        except BadAnswer:
            why = "ignores response_format"
        else:
            return "response_format"
        logger.warning(
            "the server of the model %r %s: the schema becomes part of the prompt. Answers are validated in any case.",
            self.client.backend.model,
            why,
        )
        return "prompt"

    async def close(self) -> None:
        """Disconnect, and stop the server."""
        await self.client.close()
        if self._server is not None:
            await self._server.stop()

    def abandon(self) -> None:
        """Release everything when the worker ends: its event loop does not run any more."""
        loop = self._loop
        if loop is not None and not (loop.is_closed() or loop.is_running() or _runs_loop()):
            loop.run_until_complete(self.close())
            return
        if self._server is not None:
            self._server.kill()
        if self.client.cache is not None:
            self.client.cache.close()


def _runs_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
