"""Filters by tokens: their number, and the number of characters per token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import AtLeast, InRange
from gristmill.stages.text.filters.token_counter import TokenCounter


@builtin
class TokenCountFilter(InRange):
    """Keep documents of ``min_tokens`` to ``max_tokens`` tokens.

    ``tokenizer`` is the path of a Hugging Face ``tokenizer.json`` or of a folder with one, the path of a SentencePiece
    ``.model``, the name of an encoding of tiktoken, or an object with an ``encode`` method. Nothing is downloaded,
    except by tiktoken if it does not have the encoding. Special tokens that the tokenizer adds count, as in NeMo
    Curator, unless ``special_tokens`` is false. Documents of more than a million characters are split at line ends or
    spaces, and the counts of the parts are added. An empty document has only the special tokens.
    """

    below = "too few tokens"
    above = "too many tokens"
    rule_text = "{0.least} to {0.most} tokens"

    def __init__(
        self, tokenizer: Any, min_tokens: int = 0, max_tokens: float = math.inf, special_tokens: bool = True
    ) -> None:
        if not min_tokens <= max_tokens:
            raise ValueError(f"TokenCountFilter: min_tokens, {min_tokens!r}, is above max_tokens, {max_tokens!r}.")
        self.counter = TokenCounter(tokenizer, special_tokens)
        self.least = min_tokens
        self.most = max_tokens

    def preload(self) -> None:
        self.counter.load()

    setup = preload

    def score_batch(self, texts: Texts) -> Array:
        return self.counter.count(texts.strings())


@builtin
class TokenizerFertilityFilter(AtLeast):
    """Keep documents with at least ``min_char_to_token_ratio`` characters per token.

    ``path_to_tokenizer`` is as in `TokenCountFilter`; special tokens do not count. A document without a token has the
    score -1.
    """

    rule_text = "at least {0.least:.3g} characters to the token"

    def __init__(self, path_to_tokenizer: Any, min_char_to_token_ratio: float = 2.5) -> None:
        self.counter = TokenCounter(path_to_tokenizer, special_tokens=False)
        self.least = min_char_to_token_ratio

    def preload(self) -> None:
        self.counter.load()

    setup = preload

    def score_batch(self, texts: Texts) -> Array:
        strings = texts.strings()
        tokens = self.counter.count(strings)
        chars = np.fromiter(map(len, strings), np.int64, len(strings))
        return np.where(tokens > 0, chars / np.maximum(tokens, 1), -1.0)

    def reasons(self, scores: Array) -> Sequence[str]:
        return ["no tokens" if score < 0 else "too few characters to the token" for score in scores]
