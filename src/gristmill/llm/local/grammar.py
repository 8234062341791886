"""Answers constrained to a JSON schema by llguidance: which tokens may come next, and an end within the limit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.lazy import Array, np
from gristmill.llm.errors import Refused

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MARGIN = 64
"""Tokens before the last possible end of an answer at which its shortest end is computed for each token."""
_EVERY = 8
"""Tokens after which it is computed otherwise."""
_LONGEST_END = 4096
_QUOTE, _LETTER = '"', "q"
_ENDINGS = ("}", "]", _QUOTE, ",", ":", "0", "1", "-", "t", "f", "n", "[", "{", "a")
"""Tokens that end an answer soonest, in the order in which they are tried outside of texts."""
_OPTIONS: Any = {"whitespace_flexible": False}


class Grammars:
    """The tokens of a model, and grammars over them."""

    def __init__(self, tokenizer: Any, vocabulary: int, end: int) -> None:
        """``vocabulary``: the number of logits. ``end``: the token that ends an answer."""
        import llguidance.hf

        self._tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=end)
        self.end = end
        self.words = -(-vocabulary // 32)
        """32-bit words of a mask."""
        by_text = {tokenizer.decode([token]): token for token in range(min(vocabulary, len(tokenizer)), -1, -1)}
        self.endings = [end, *(by_text[text] for text in _ENDINGS if text in by_text)]
        self.letter, self.quote = by_text.get(_LETTER, end), by_text.get(_QUOTE, end)
        self._grammar = lru_cache(64)(self._compiled)

    def answer(self, schema: Mapping[str, Any]) -> ConstrainedAnswer:
        """Begin an answer that matches a schema."""
        import llguidance

        matcher = llguidance.LLMatcher(self._tokens, self._grammar(fast_json.dumps(dict(schema))), log_level=0)
        if matcher.is_error():
            raise Refused(f"the schema cannot constrain the model: {matcher.get_error()}")
        return ConstrainedAnswer(self, matcher)

    def _compiled(self, schema: bytes) -> str:
        import llguidance

        try:
            grammar: str = llguidance.LLMatcher.grammar_from_json_schema(schema.decode(), overrides=_OPTIONS)
        except ValueError as error:
            raise Refused(f"the schema cannot constrain the model: {error}") from None
        return grammar


class ConstrainedAnswer:
    """One answer while it is written."""

    def __init__(self, grammars: Grammars, matcher: LLMatcher) -> None:
        self._grammars = grammars
        self._matcher = matcher
        self._shortest = 0
        """Tokens of the shortest end, when it was last computed."""
        self._age = _EVERY

    def fill(self, mask: Array) -> None:
        """Write a bit for each token that may come next."""
        _fill(self._matcher, mask)

    def accept(self, token: int, left: int) -> int:
        """Take the next token. ``left``: how many tokens the answer may have after it. Return the token to use.

        That is another one if the answer could not end within the limit after it: the one that ends it soonest.
        """
        if token == self._grammars.end or not self._matcher.try_consume_tokens([token]):
            return self._grammars.end
        self._age += 1
        if left > self._shortest + _MARGIN and self._age < _EVERY:
            return token
        shortest = self._tokens_to_end()
        if shortest > left and self._matcher.rollback(1):
            token = self._ending(self._matcher)
            if token != self._grammars.end:
                self._matcher.consume_token(token)
            shortest = self._tokens_to_end()
        self._shortest, self._age = shortest, 0
        return token

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return bool(self._matcher.is_stopped() or self._matcher.is_error())

    def _ending(self, matcher: LLMatcher) -> int:
        """The token that ends the answer soonest."""
        mask = np.zeros(self._grammars.words, np.int32)
        _fill(matcher, mask)
        grammars = self._grammars
        if _allows(mask, grammars.letter) and _allows(mask, grammars.quote):
            return grammars.quote  # within a text
        for token in grammars.endings:
            if _allows(mask, token):
                return token
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        return int(allowed[0]) if len(allowed) else self._grammars.end

    def _tokens_to_end(self) -> int:
        matcher = self._matcher.deep_copy()
        for count in range(_LONGEST_END):
            token = self._ending(matcher)
            if token == self._grammars.end or matcher.is_stopped():
                return count
            matcher.consume_token(token)
        return _LONGEST_END


def _allows(mask: Array, token: int) -> bool:
    return bool(mask[token >> 5].view(np.uint32) >> (token & 31) & 1)


def _fill(matcher: LLMatcher, mask: Array) -> None:
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
