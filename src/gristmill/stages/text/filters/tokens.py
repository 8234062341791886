"""Filters by tokens: their number, and the number of characters per token."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, InRange


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
    thresholds = {"min_tokens": "least", "max_tokens": "most"}

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
    thresholds = {"min_char_to_token_ratio": "least"}

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


PART = 1_000_000
"""Characters that are encoded at once. Encodings take some hundred bytes per token, so longer texts are split."""

Count = Callable[[Sequence[str]], list[int]]


@runtime_checkable
class Tokenizer(Protocol):
    """An object that encodes a text: as a sequence of tokens, or as an `Encoded` object."""

    def encode(self, text: str, /) -> Any: ...


@runtime_checkable
class Encoded(Protocol):
    """An encoding as the package tokenizers returns it."""

    ids: Sequence[int]


@runtime_checkable
class TiktokenEncoding(Protocol):
    """An encoding of tiktoken. Its ``encode`` refuses texts that contain special tokens as plain text."""

    def encode_ordinary(self, text: str) -> Sequence[int]: ...


@runtime_checkable
class _FastBatches(Protocol):
    """A Hugging Face tokenizer that can skip offsets, as newer versions of the package can."""

    def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool) -> list[Any]: ...


class TokenCounter:
    """Counts the tokens of texts. The tokenizer is loaded at its first use and is not sent between processes.

    A tokenizer that is given as an object is sent, and used as it is.
    """

    def __init__(self, tokenizer: Any, special_tokens: bool) -> None:
        self.tokenizer = check(tokenizer)
        self.special_tokens = special_tokens
        self._loaded: tuple[Count, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loaded": None}

    def load(self) -> None:
        """Load the tokenizer without threads of its own, since the process may be forked."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._load()

    def count(self, texts: Sequence[str]) -> Array:
        encode, special = self._load()
        counts = np.full(len(texts), special, dtype=np.int64)
        for numbers, parts in _portions(texts):
            np.add.at(counts, numbers, encode(parts))
        return counts

    def _load(self) -> tuple[Count, int]:
        if self._loaded is None:
            self._loaded = _open(self.tokenizer, self.special_tokens)
        return self._loaded


def check(tokenizer: Any) -> Any:
    """Return the tokenizer as it was given. Raise an error if it cannot be one. Nothing is loaded."""
    if not isinstance(tokenizer, str | os.PathLike):
        if not isinstance(tokenizer, Tokenizer):
            raise TypeError(f"{tokenizer!r} is not a tokenizer: it has no method 'encode'.")
        return tokenizer
    path = Path(tokenizer)
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            raise FileNotFoundError(f"the folder {path} holds no tokenizer.json.")
    elif not path.exists():
        if len(path.parts) > 1 or path.suffix in (".json", ".model"):
            raise FileNotFoundError(f"there is no tokenizer at {path}.")
        if importlib.util.find_spec("tiktoken") is None:
            raise FileNotFoundError(
                f"{str(path)!r} is no file or folder. If it names an encoding of tiktoken: pip install tiktoken"
            )
    return str(tokenizer)


def _open(tokenizer: Any, special_tokens: bool) -> tuple[Count, int]:
    """Return a function that counts the tokens of texts, and the number of special tokens to add to each count."""
    if isinstance(tokenizer, str):
        tokenizer = _read(tokenizer)
    if type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        return _hugging_face(tokenizer, special_tokens)
    if isinstance(tokenizer, TiktokenEncoding):
        return lambda texts: [len(tokenizer.encode_ordinary(text)) for text in texts], 0

    def length(text: str) -> int:
        encoded = tokenizer.encode(text)
        return len(encoded.ids if isinstance(encoded, Encoded) else encoded)

    # Not every tokenizer knows add_special_tokens=False. What it adds to the empty text it adds to all texts.
    special = length("")
    return lambda texts: [length(text) - special for text in texts], special if special_tokens else 0


def _hugging_face(tokenizer: Any, special_tokens: bool) -> tuple[Count, int]:
    # A tokenizer.json may truncate and pad texts for a model. Counts need neither.
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    encode = tokenizer.encode_batch_fast if isinstance(tokenizer, _FastBatches) else tokenizer.encode_batch
    special = tokenizer.num_special_tokens_to_add(is_pair=False) if special_tokens else 0
    return lambda texts: [len(one.ids) for one in encode(list(texts), add_special_tokens=False)], special


def _read(name: str) -> Any:
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.exists():
        return _tiktoken(name)
    if path.suffix == ".model":
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise ImportError(f"{path} is a SentencePiece model: pip install sentencepiece") from None
        return SentencePieceProcessor(model_file=str(path))
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ImportError:
        raise ImportError(f"the tokenizer {path} needs the package tokenizers: pip install 'gristmill[text]'") from None
    try:
        return HuggingFaceTokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception for any error in the file
        raise ValueError(f"{path} is not a tokenizer.json that the package tokenizers can read: {error}") from None


def _tiktoken(name: str) -> Any:
    import tiktoken

    known = tiktoken.list_encoding_names()
    if name not in known:
        raise ValueError(f"{name!r} is neither a file nor an encoding of tiktoken. Encodings: {', '.join(known)}.")
    return tiktoken.get_encoding(name)


def _portions(texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Yield texts, or parts of them, with their numbers, in portions of at most `PART` characters."""
    numbers: list[int] = []
    parts: list[str] = []
    size = 0
    for number, text in enumerate(texts):
        for part in _split(text):
            if parts and size + len(part) > PART:
                yield numbers, parts
                numbers, parts, size = [], [], 0
            numbers.append(number)
            parts.append(part)
            size += len(part)
    if parts:
        yield numbers, parts


def _split(text: str) -> Iterator[str]:
    """Yield parts of a text that end where a line ends, or else before a space, as tokens do; else anywhere."""
    start = 0
    while len(text) - start > PART:
        end = start + PART
        cut = text.rfind("\n", start, end) + 1
        if cut <= start:
            cut = text.rfind(" ", start + 1, end)
        start, part = (cut, text[start:cut]) if cut > start else (end, text[start:end])
        yield part
    yield text[start:]
