"""From a document to requests, and from their answers to the values of its columns."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gristmill.llm.errors import BadAnswer, Refused
from gristmill.llm.prompts import PromptTemplate, chat
from gristmill.llm.requests import Message, Request
from gristmill.llm.session import Session
from gristmill.llm.structured import Schema
from gristmill.llm.usage import Usage

Document = Mapping[str, Any]
PromptFunction = Callable[[Document], str | Sequence[Message]]
TalkFunction = Callable[[Document, "Ask"], Awaitable[Any]]
SEED = "seed"


class Conversation(ABC):
    """Several requests about a document, as an object: like a function with ``ask``, but with known columns."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The columns of the document that it reads."""

    @abstractmethod
    async def __call__(self, document: Document, ask: Ask) -> Any:
        """Return the answer."""


@dataclass(frozen=True)
class Asking:
    """How requests are made of a document."""

    prompts: Mapping[str, PromptTemplate | PromptFunction | TalkFunction]
    """By the column of the answer."""
    parameters: Mapping[str, Any]
    system: PromptTemplate | None = None
    examples: Sequence[tuple[str, str]] = ()
    is_chat: bool = True
    image_field: str | None = None
    schema: Schema | None = None
    samples: int = 1

    def request(self, document: Document, prompt: str | Sequence[Message], sample: int = 0) -> Request:
        """Return the request for a prompt, or for a whole chat."""
        parameters = dict(self.parameters)
        if sample and parameters.get(SEED) is not None:
            parameters[SEED] += sample
        if not isinstance(prompt, str):
            return Request(messages=list(prompt), parameters=parameters, sample=sample)
        if not self.is_chat:
            return Request(prompt=prompt, parameters=parameters, sample=sample)
        system = None if self.system is None else self.system.render(document)
        image = document[self.image_field] if self.image_field is not None else None
        images = image if isinstance(image, list) else [] if image is None else [image]
        if self.image_field is not None and not images:
            raise Refused("there is no image")
        messages = chat(prompt, system, self.examples, images)
        return Request(messages=messages, parameters=parameters, sample=sample)

    async def values(self, document: Document, session: Session, used: Usage, rank: int) -> dict[str, Any]:
        """Return the answers about a document by column: lists of them if there are several samples."""
        made: dict[str, Any] = {}
        for column, prompt in self.prompts.items():
            answers = []
            for sample in range(self.samples):
                ask = Ask(self, document, session, used, rank, sample)
                answers.append(await self._value(prompt, ask))
            made[column] = answers[0] if self.samples == 1 else answers
        return made

    async def _value(self, prompt: PromptTemplate | PromptFunction | TalkFunction, ask: Ask) -> Any:
        if isinstance(prompt, PromptTemplate):
            return await ask(prompt.render(ask.document), schema=self.schema)
        if isinstance(prompt, Conversation) or inspect.iscoroutinefunction(prompt):
            value = await prompt(ask.document, ask)
            return checked_value(value, self.schema)
        function: Any = prompt
        return await ask(function(ask.document), schema=self.schema)


@dataclass(frozen=True)
class Ask:
    """Asks the model about one document, as often as wanted.

        async def twice(document, ask):
            draft = await ask(f"Summarize: {document['text']}")
            return await ask(f"Shorten: {draft}", max_tokens=50)

    Equal requests of one document are one request: pass another ``seed`` to get another answer.
    """

    asking: Asking
    document: Document
    session: Session
    used: Usage
    rank: int
    sample: int = 0

    async def __call__(self, prompt: str | Sequence[Message], *, schema: Any = None, **parameters: Any) -> Any:
        """Return the answer to a prompt or a list of messages: its text, or its value if there is a ``schema``."""
        request = self.asking.request(self.document, prompt, self.sample)
        if parameters:
            request = replace(request, parameters={**request.parameters, **parameters})
        if schema is None:
            return await self.session.text(request, self.used, self.rank)
        wanted = schema if isinstance(schema, Schema) else Schema.of(schema)
        return await self.session.value(request, wanted, self.used, self.rank)


def checked_value(value: Any, schema: Schema | None) -> Any:
    """Return what a function returned. Raise `BadAnswer` if it does not match the schema, or is no text without one."""
    from gristmill import fast_json

    if schema is not None:
        return schema.parsed(fast_json.dumps(value).decode())
    if not isinstance(value, str):
        raise BadAnswer(f"the function returned a {type(value).__name__}, not a text; give a schema", repr(value))
    return value
