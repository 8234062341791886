"""What the stages share that are made of `LLMStage`: arguments, prompts with the text of a document, and segments."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gristmill.llm.prompts import PromptTemplate
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.text.llm.asking import Ask, Conversation, Document
from gristmill.stages.text.llm.models import ChatModel
from gristmill.stages.text.llm.stage import LLMStage
from gristmill.tasks import DocumentBatch

TEXT = "[[TEXT]]"
"""Stands for the text of the document in prompts of this package."""
_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
_SENTENCES = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")
_WORDS = re.compile(r"\s+")


@dataclass(eq=False, repr=False)
class LLMTask(CompositeStage[DocumentBatch, DocumentBatch]):
    """The arguments of all stages that are made of `LLMStage`.

    - ``model``: an `Endpoint`, or another model.
    - ``text_field``: the column of the text.
    - ``max_chars``: the model reads no more characters of a text.
    - ``parameters``, ``budget``, ``cache``, ``cache_size``: as `LLMStage` has them.
    """

    indifferent = ("budget", "cache", "cache_size")

    model: ChatModel
    _: KW_ONLY
    text_field: str = "text"
    max_chars: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None
    cache: str | bool = True
    cache_size: int | str | None = None

    def __post_init__(self) -> None:
        if not self.text_field.isidentifier():
            raise ValueError(f"text_field must be a name that templates know, not {self.text_field!r}.")
        self.decompose()  # wrong arguments are errors here

    @abstractmethod
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages that do the work."""

    def template(self, words: str) -> str:
        """Return a prompt with the text of the document in the place of `TEXT`."""
        end = "" if self.max_chars is None else f"[:{self.max_chars}]"
        return words.replace(TEXT, f"{{{{ {self.text_field}{end} }}}}")

    def llm(self, prompt: Any, **options: Any) -> LLMStage:
        """Return the stage that asks."""
        given = {"parameters": self.parameters, "budget": self.budget, "cache": self.cache}
        stage = LLMStage(self.model, prompt, **{**given, "cache_size": self.cache_size, **options})
        stage.name = f"{self.name} model"
        return stage


class BySegments(Conversation, ABC):
    """Asks about each segment of a text, and joins the answers."""

    def __init__(self, prompt: str, text_field: str, segment_chars: int | None) -> None:
        if segment_chars is not None and (isinstance(segment_chars, bool) or segment_chars < 1):
            raise ValueError(f"segment_chars must be a whole number of at least 1, not {segment_chars!r}.")
        self.template = PromptTemplate(prompt)
        self.text_field = text_field
        self.segment_chars = segment_chars

    @property
    def columns(self) -> Sequence[str]:
        return sorted({self.text_field, *self.template.columns} - {"segment"})

    async def __call__(self, document: Document, ask: Ask) -> str:
        pieces = segments(str(document[self.text_field] or ""), self.segment_chars)
        wanted = [piece for piece, _ in pieces]
        answers = await asyncio.gather(*(self._answer(piece, document, ask) for piece in wanted))
        return "".join(answer + between for answer, (_, between) in zip(answers, pieces, strict=True))

    async def _answer(self, piece: str, document: Document, ask: Ask) -> str:
        if not piece.strip():
            return piece
        prompt = self.template.render({**document, "segment": piece})
        return str(await ask(prompt)).strip()


class TextBySegments(BySegments):
    """The answers about the segments of a text, with the white space that was between the segments."""


def segments(text: str, most: int | None) -> list[tuple[str, str]]:
    """Split a text into segments of at most ``most`` characters, each with the white space after it.

    Joined again they are the text. Splits are between paragraphs if possible, else between sentences or words.
    """
    if most is None or len(text) <= most:
        return [(text, "")]
    for pattern in (_PARAGRAPHS, _SENTENCES, _WORDS):
        pieces = _split(text, pattern)
        if len(pieces) > 1:
            return _merged([part for piece, between in pieces for part in _nested(piece, between, most)], most)
    return [(text[start : start + most], "") for start in range(0, len(text), most)]


def _nested(piece: str, between: str, most: int) -> list[tuple[str, str]]:
    parts = segments(piece, most)
    return [*parts[:-1], (parts[-1][0], parts[-1][1] + between)]


def _split(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    start = 0
    for match in pattern.finditer(text):
        pieces.append((text[start : match.start()], match[0]))
        start = match.end()
    return [*pieces, (text[start:], "")] if start < len(text) or not pieces else pieces


def _merged(pieces: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Join neighbours while they are short enough."""
    made: list[tuple[str, str]] = []
    for piece, between in pieces:
        if made and len(made[-1][0]) + len(made[-1][1]) + len(piece) <= most:
            piece = made[-1][0] + made[-1][1] + piece
            made.pop()
        made.append((piece, between))
    return made
