"""Counts tokens with whatever tokenizer there is."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gristmill.lazy import Array, np

PIECE = 1_000_000
"""Characters that are encoded at once. Encodings take some hundred bytes for a token, so that longer texts are cut."""

Count = Callable[[Sequence[str]], list[int]]


class TokenCounter:
    """The number of tokens of texts, by a tokenizer that is loaded on first use and never travels between processes.

    A tokenizer that is given as an object does travel, and is used as it is.
    """

    def __init__(self, tokenizer: Any, special_tokens: bool) -> None:
        self.tokenizer = check(tokenizer)
        self.special_tokens = special_tokens
        self._loaded: tuple[Count, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def load(self) -> None:
        """Load the tokenizer; in a process that is to be forked, or was, it must not start threads of its own."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._load()

    def count(self, texts: Sequence[str]) -> Array:
        encode, special = self._load()
        counts = np.full(len(texts), special, dtype=np.int64)
        for numbers, pieces in _portions(texts):
            np.add.at(counts, numbers, encode(pieces))
        return counts

    def _load(self) -> tuple[Count, int]:
        if self._loaded is None:
            self._loaded = _open(self.tokenizer, self.special_tokens)
        return self._loaded


def check(tokenizer: Any) -> Any:
    """The tokenizer as it was given, or an error that says what is wrong with it. Nothing is loaded."""
    if not isinstance(tokenizer, str | os.PathLike):
        if not callable(getattr(tokenizer, "encode", None)):
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
    """What counts the tokens of texts, and how many special ones are to be added to each count."""
    if isinstance(tokenizer, str):
        tokenizer = _read(tokenizer)
    if type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        return _hugging_face(tokenizer, special_tokens)
    if hasattr(tokenizer, "encode_ordinary"):  # tiktoken: its `encode` refuses texts that spell out special tokens
        return lambda texts: [len(tokenizer.encode_ordinary(text)) for text in texts], 0

    def length(text: str) -> int:
        encoded = tokenizer.encode(text)
        return len(getattr(encoded, "ids", encoded))

    # With add_special_tokens=False a tokenizer would have to know the argument; what it adds to nothing it adds to all.
    special = length("")
    return lambda texts: [length(text) - special for text in texts], special if special_tokens else 0


def _hugging_face(tokenizer: Any, special_tokens: bool) -> tuple[Count, int]:
    # A tokenizer.json may say to cut texts and to fill them up, as models want it: a count wants neither.
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
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
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError(f"the tokenizer {path} needs the package tokenizers: pip install 'gristmill[text]'") from None
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception for whatever is wrong with the file
        raise ValueError(f"{path} is not a tokenizer.json that the package tokenizers can read: {error}") from None


def _tiktoken(name: str) -> Any:
    import tiktoken

    known = tiktoken.list_encoding_names()
    if name not in known:
        raise ValueError(f"{name!r} is neither a file nor an encoding of tiktoken; those are: {', '.join(known)}.")
    return tiktoken.get_encoding(name)


def _portions(texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Texts, or pieces of them, with their numbers, in portions of no more than `PIECE` characters."""
    numbers: list[int] = []
    pieces: list[str] = []
    size = 0
    for number, text in enumerate(texts):
        for piece in _cut(text):
            if pieces and size + len(piece) > PIECE:
                yield numbers, pieces
                numbers, pieces, size = [], [], 0
            numbers.append(number)
            pieces.append(piece)
            size += len(piece)
    if pieces:
        yield numbers, pieces


def _cut(text: str) -> Iterator[str]:
    """A text in pieces that end where a line ends, or else before a space, as tokens do; else anywhere."""
    start = 0
    while len(text) - start > PIECE:
        end = start + PIECE
        cut = text.rfind("\n", start, end) + 1
        if cut <= start:
            cut = text.rfind(" ", start + 1, end)
        start, piece = (cut, text[start:cut]) if cut > start else (end, text[start:end])
        yield piece
    yield text[start:]
