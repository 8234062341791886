"""Texts to token ids for embedders: after a prompt, in one chunk or in as many as a text needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from gristmill.errors import ModelError
from gristmill.lazy import np
from gristmill.models.tokenizer import ModelTokenizer, ReadLimits, Truncation, portions
from gristmill.models.tokens import TokenLists


class ChunkTokenizer:
    """Tokenizes texts after a prompt.

    A text that has more tokens than the limit is cut or, with ``in_chunks``, divided into chunks. Each chunk has the
    special tokens and those of the prompt, and all but the last have as many tokens as the limit: `chunks_of` finds
    them in the tokens of a text.
    """

    def __init__(self, tokenizer: ModelTokenizer, prompt: str, limits: ReadLimits, in_chunks: bool) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._limits = limits
        self._in_chunks = in_chunks
        (self._prompt_ids,) = tokenizer.encode([prompt])
        around = len(tokenizer.prefix) + len(tokenizer.suffix) + len(self._prompt_ids)
        if limits.tokens is not None and (prompt or in_chunks) and limits.tokens <= around:
            raise ModelError(
                f"the prompt and special tokens are {around:,} tokens, and the model reads at most {limits.tokens:,}.\n"
                "    use a shorter prompt, or a larger max_seq_length."
            )

    def tokens(self, texts: Sequence[str | None]) -> tuple[TokenLists, Truncation]:
        """The tokens of each text, all its chunks one after another, and what was cut. None is an empty text."""
        if not self._prompt and not self._in_chunks:
            return self._tokenizer.tokens(texts, self._limits)
        cut = Truncation()
        rows = []
        for part in portions([text or "" for text in texts]):
            read = [text[: self._limits.chars] for text in part]
            encoded = self._tokenizer.encode([self._prompt + text for text in read])
            for text, shown, ids in zip(part, read, encoded, strict=True):
                chunks = list(self._chunks(ids))
                lost = 0 if self._in_chunks else sum(map(len, chunks[1:]))
                if lost or len(shown) < len(text):
                    cut.documents += 1
                    cut.chars += len(text) - len(shown)
                    cut.tokens += lost
                rows.append(self._with_special(ids, chunks if self._in_chunks else chunks[:1]))
        return TokenLists.from_lists(rows), cut

    def _repeated(self, ids: Sequence[int]) -> int:
        """How many tokens are those of the prompt: the last ones can be merged with the text."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, self._prompt_ids, strict=False)))

    def _chunks(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """The tokens of the text in each chunk, without those of the prompt."""
        start = self._repeated(ids)
        if self._limits.tokens is None:
            yield ids[start:]
            return
        most = self._limits.tokens - len(self._tokenizer.prefix) - len(self._tokenizer.suffix) - start
        yield ids[start : start + most]
        for at in range(start + most, len(ids), most):
            yield ids[at : at + most]

    def _with_special(self, ids: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[int]:
        prompt = ids[: self._repeated(ids)]
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        made = [token for chunk in chunks for token in (*prefix, *prompt, *chunk, *suffix)]
        return made or [self._tokenizer.filler]


def chunks_of(tokens: TokenLists, limit: int) -> tuple[TokenLists, np.ndarray]:
    """Return the chunks of texts as texts of their own, and the text of each."""
    counts = -(-tokens.lengths // limit)
    texts = np.repeat(np.arange(len(tokens)), counts)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    starts = tokens.offsets[:-1][texts] + (np.arange(len(texts)) - firsts) * limit
    return TokenLists(tokens.ids, np.append(starts, tokens.offsets[-1])), texts
