"""A prompt around each text, whose beginning is the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gristmill.errors import ModelError
from gristmill.models.tokenizer import ModelTokenizer, ReadLimits, Truncation
from gristmill.models.tokens import TokenLists

PLACE = "{text}"
"""Where a text goes in a prompt."""
_PROBES = ("", "a", " Z", "1", "\n", "é", "(", "▁", " the end \n")
"""Texts that begin and end in different ways. Tokens that differ between their prompts belong to the text."""
_MARGIN = 4
"""Tokens beside the text that are not taken to be the same in all prompts."""


@dataclass(frozen=True)
class Prompt:
    """Texts to put before and after each text."""

    before: str
    after: str

    @classmethod
    def read(cls, path: str) -> Prompt:
        """Read a prompt from a text file that has ``{text}`` once."""
        try:
            whole = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"the prompt {path!r} cannot be read: {error}.") from None
        before, place, after = whole.partition(PLACE)
        if not place or PLACE in after:
            raise ModelError(f"the prompt {path!r} must have {PLACE} once, where the text of a document goes.")
        return cls(before, after)

    def around(self, text: str) -> str:
        return f"{self.before}{text}{self.after}"


class PromptTokenizer:
    """Tokenizes prompts. Tokens that all prompts begin with are omitted: a model computes them once."""

    def __init__(self, tokenizer: ModelTokenizer, prompt: Prompt, limits: ReadLimits) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._limits = limits
        probes, _ = tokenizer.tokens([prompt.around(text) for text in _PROBES], ReadLimits())
        rows = [probes.ids[start:stop].tolist() for start, stop in _pairs(probes)]
        self.prefix: tuple[int, ...] = tuple(_common(rows))
        end = _common([row[::-1] for row in rows])[::-1]
        self._end: list[int] = end if len(self.prefix) + len(end) < min(map(len, rows)) else []
        """The tokens that all prompts end with."""
        if limits.tokens is not None and limits.tokens <= len(self.prefix) + len(self._end):
            raise ModelError(
                f"the prompt itself has {len(self.prefix) + len(self._end):,} tokens, and the model reads at most "
                f"{limits.tokens:,}.\n    use a shorter prompt."
            )

    def tokens(self, texts: Sequence[str | None]) -> tuple[TokenLists, Truncation]:
        """The tokens of each prompt after the common prefix. If a prompt is too long, its text is cut."""
        cut = Truncation()
        shown = [text or "" for text in texts]
        read = [text[: self._limits.chars] for text in shown]
        whole, _ = self._tokenizer.tokens([self._prompt.around(text) for text in read], ReadLimits())
        rows = []
        for (start, stop), text, part in zip(_pairs(whole), shown, read, strict=True):
            row = whole.ids[start:stop].tolist()
            if tuple(row[: len(self.prefix)]) != self.prefix:
                raise ModelError(
                    "the tokenizer merges the beginning of the prompt with a text, which is not supported."
                )
            most = self._limits.tokens
            lost = 0 if most is None else max(0, len(row) - most)
            if lost:
                row = row[: len(row) - len(self._end) - lost] + self._end
            if lost or len(part) < len(text):
                cut.documents += 1
                cut.chars += len(text) - len(part)
                cut.tokens += lost
            rows.append(row[len(self.prefix) :])
        return TokenLists.from_lists(rows), cut


def _pairs(tokens: TokenLists) -> list[tuple[int, int]]:
    return list(zip(tokens.offsets[:-1].tolist(), tokens.offsets[1:].tolist(), strict=True))


def _common(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the tokens that all rows begin with, without the last few."""
    count = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return list(rows[0][: max(0, count - _MARGIN)])
