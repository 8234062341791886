"""Filters by tokens: how many there are, and how many characters each stands for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.token_counter import TokenCounter

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


class _Tokens(DocumentFilter):
    """A filter with a tokenizer, loaded once and shared by workers where that can be."""

    def __init__(self, tokenizer: Any, special_tokens: bool) -> None:
        self.counter = TokenCounter(tokenizer, special_tokens)

    def preload(self) -> None:
        self.counter.load()

    def setup(self) -> None:
        self.counter.load()


@builtin
class TokenCountFilter(_Tokens):
    """Keep documents of ``min_tokens`` to ``max_tokens`` tokens.

    ``tokenizer`` is the path of a ``tokenizer.json`` of Hugging Face or of a folder with one, of a SentencePiece
    ``.model``, the name of an encoding of tiktoken, or an object with an ``encode`` method. Nothing is downloaded, save
    by tiktoken where it does not have the encoding. Special tokens that the tokenizer adds count, as in NeMo Curator,
    unless ``special_tokens`` is false. Documents of more than a million characters are cut at line ends or spaces, and
    the counts of the pieces added up. An empty document has no tokens but the special ones.
    """

    def __init__(
        self, tokenizer: Any, min_tokens: int = 0, max_tokens: float = math.inf, special_tokens: bool = True
    ) -> None:
        if not min_tokens <= max_tokens:
            raise ValueError(f"TokenCountFilter: min_tokens, {min_tokens!r}, is above max_tokens, {max_tokens!r}.")
        super().__init__(tokenizer, special_tokens)
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens

    def score_batch(self, texts: Texts) -> Array:
        return self.counter.count(texts.strings())

    def keep_batch(self, scores: Array) -> Array:
        return (scores >= self.min_tokens) & (scores <= self.max_tokens)

    def reasons(self, scores: Array) -> list[str]:
        return ["too few tokens" if score < self.min_tokens else "too many tokens" for score in scores]

    def rule(self) -> str:
        return f"{self.min_tokens} to {self.max_tokens} tokens"


@builtin
class TokenizerFertilityFilter(_Tokens):
    """Keep documents whose tokens stand for at least ``min_char_to_token_ratio`` characters on average.

    ``path_to_tokenizer`` is what `TokenCountFilter` takes; special tokens do not count. A document without a token has
    the score -1.
    """

    def __init__(self, path_to_tokenizer: Any, min_char_to_token_ratio: float = 2.5) -> None:
        super().__init__(path_to_tokenizer, special_tokens=False)
        self.min_char_to_token_ratio = min_char_to_token_ratio

    def score_batch(self, texts: Texts) -> Array:
        strings = texts.strings()
        tokens = self.counter.count(strings)
        chars = np.fromiter(map(len, strings), np.int64, len(strings))
        return np.where(tokens > 0, chars / np.maximum(tokens, 1), -1.0)

    def keep_batch(self, scores: Array) -> Array:
        return scores >= self.min_char_to_token_ratio

    def reasons(self, scores: Array) -> list[str]:
        return ["no tokens" if score < 0 else "too few characters to the token" for score in scores]

    def rule(self) -> str:
        return f"at least {self.min_char_to_token_ratio:.3g} characters to the token"
