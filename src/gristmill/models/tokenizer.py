"""Texts to token ids, as the tokenizer of a checkpoint does it."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.errors import ModelError
from gristmill.models.architectures import most_tokens
from gristmill.models.checkpoint import TOKENIZER, Checkpoint
from gristmill.models.tokens import TokenLists

CONFIG = "tokenizer_config.json"
NO_LIMIT = 100_000
"""A ``model_max_length`` from here on means that the tokenizer does not know one."""
PORTION = 1 << 22
"""Characters that are given to the tokenizer at a time: this bounds the memory of its results."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much of a text a model reads."""

    chars: int | None = None
    tokens: int | None = None
    """Special tokens included."""


@dataclass(slots=True)
class Truncation:
    """Counts of what was cut from texts before a model read them. The texts themselves are not changed."""

    documents: int = 0
    """Texts that were cut."""
    chars: int = 0
    """Characters beyond the limit on characters."""
    tokens: int = 0
    """Tokens beyond the limit on tokens, of what the limit on characters left."""

    def counters(self) -> dict[str, int]:
        """The counts that are not 0, by what the account of a run calls them."""
        counts = {
            "documents cut for the model": self.documents,
            "characters not read by the model": self.chars,
            "tokens not read by the model": self.tokens,
        }
        return {name: count for name, count in counts.items() if count}


class ModelTokenizer(ABC):
    """The tokenizer of a checkpoint, with the special tokens that it adds to a single text."""

    prefix: Sequence[int]
    suffix: Sequence[int]
    """Special tokens before and after the tokens of a text."""
    filler: int
    """Stands for a text that has no tokens at all: a model needs one."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, all of them, without special ones."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""

    def tokens(self, texts: Sequence[str | None], limits: ReadLimits) -> tuple[TokenLists, Truncation]:
        """The tokens of each text within limits, with special tokens. None is an empty text."""
        cut = Truncation()
        most = None if limits.tokens is None else max(0, limits.tokens - len(self.prefix) - len(self.suffix))
        rows: list[list[int]] = []
        for part in portions([text or "" for text in texts]):
            read = [text[: limits.chars] for text in part] if limits.chars is not None else part
            for text, shown, ids in zip(part, read, self.encode(read), strict=True):
                lost = 0 if most is None else max(0, len(ids) - most)
                if lost or len(shown) < len(text):
                    cut.documents += 1
                    cut.chars += len(text) - len(shown)
                    cut.tokens += lost
                rows.append(self._with_special(ids[:most] if lost else ids))
        return TokenLists.from_lists(rows), cut

    def _with_special(self, ids: list[int]) -> list[int]:
        return [*self.prefix, *ids, *self.suffix] or [self.filler]


class FastTokenizer(ModelTokenizer):
    """The tokenizer of a tokenizer.json, by the package tokenizers alone."""

    def __init__(self, path: Path, settings: dict[str, Any], lowercase: bool = False) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # several workers run at once, and they may be forked
        try:
            from tokenizers import Tokenizer as Loaded
            from tokenizers import normalizers
        except ImportError:
            raise ModelError(
                f"the tokenizer {path} needs the package tokenizers.\n    pip install 'gristmill[models]'"
            ) from None
        try:
            self._tokenizer: Any = Loaded.from_file(str(path))
        except Exception as error:  # the package raises bare Exception for any error in the file
            raise ModelError(f"{path} is not a tokenizer.json that the package tokenizers can read: {error}") from None
        if lowercase:
            own = self._tokenizer.normalizer
            steps = [normalizers.Lowercase(), *([] if own is None else [own])]
            self._tokenizer.normalizer = normalizers.Sequence(steps)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.prefix, self.suffix = self._special()
        self.filler = self._filler(settings)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in found]

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids))
        return text

    def _special(self) -> tuple[list[int], list[int]]:
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        added = len(whole) - len(plain)
        for before in range(added + 1):
            if whole[before : before + len(plain)] == plain:
                return whole[:before], whole[before + len(plain) :]
        raise ModelError("the tokenizer changes tokens when it adds special ones, which is not supported.")

    def _filler(self, settings: dict[str, Any]) -> int:
        for name in ("pad_token", "eos_token", "unk_token"):
            token = settings.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            found = self._tokenizer.token_to_id(token) if isinstance(token, str) else None
            if found is not None:
                return int(found)
        return 0


class TransformersTokenizer(ModelTokenizer):
    """The tokenizer of a checkpoint without tokenizer.json, by the package transformers."""

    def __init__(self, folder: Path) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise ModelError(
                f"{folder} has no {TOKENIZER}, and other tokenizers need the package transformers.\n"
                "    pip install 'gristmill[models]'"
            ) from None
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        plain = self._plain(["a"])[0]
        whole: list[int] = self._tokenizer("a")["input_ids"]
        start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
        self.prefix, self.suffix = whole[:start], whole[start + len(plain) :]
        known = [self._tokenizer.pad_token_id, self._tokenizer.eos_token_id, self._tokenizer.unk_token_id]
        self.filler = next((one for one in known if one is not None), 0)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._plain(texts)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return found


def load_tokenizer(checkpoint: Checkpoint, lowercase: bool = False) -> ModelTokenizer:
    """Load the tokenizer of a checkpoint whose files are on this machine; ``lowercase`` texts if asked for."""
    folder = checkpoint.folder()
    if (folder / TOKENIZER).is_file():
        return FastTokenizer(folder / TOKENIZER, _settings(folder), lowercase)
    checkpoint.check_tokenizer()
    if lowercase:
        raise ModelError(
            f"{checkpoint.title} reads texts in lower case, which needs a {TOKENIZER}.\n"
            "    save one: AutoTokenizer.from_pretrained(...).save_pretrained(folder)."
        )
    return TransformersTokenizer(folder)


def token_limit(checkpoint: Checkpoint, wanted: int | None) -> int | None:
    """Return how many tokens of a text are read, special ones included; None if nothing limits them.

    That is ``wanted``, or else what the tokenizer or the model names. More than the model takes is a `ModelError`.
    """
    config = checkpoint.trunk_config if checkpoint.file("config.json") is not None else {}
    most = most_tokens(config)
    if wanted is not None:
        if most is not None and wanted > most:
            raise ModelError(
                f"{checkpoint.title} takes at most {most:,} tokens of a text, but max_seq_length is {wanted:,}.\n"
                f"    set max_seq_length to {most:,} or less."
            )
        return wanted
    given = (checkpoint.json(CONFIG) or {}).get("model_max_length")
    length = int(given) if isinstance(given, int | float) and given < NO_LIMIT else None
    if length is None:
        return most if most is not None else config.get("max_position_embeddings")
    return length if most is None else min(length, most)


def check_vocabulary(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if a tokenizer.json has tokens that the model does not know: it is that of another model."""
    path = checkpoint.file(TOKENIZER)
    known = checkpoint.trunk_config.get("vocab_size") if checkpoint.file("config.json") is not None else None
    if path is None or not isinstance(known, int):
        return
    try:
        vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
        most = len(vocabulary) if isinstance(vocabulary, list) else 1 + max(vocabulary.values(), default=-1)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ModelError(
            f"{checkpoint.title}: {path} is not a tokenizer.json that the package tokenizers can read: "
            f"{type(error).__name__}: {error}.\n    get the checkpoint again."
        ) from None
    if most > known:
        raise ModelError(
            f"{checkpoint.title}: its {TOKENIZER} has {most:,} tokens, but the model knows {known:,}.\n"
            f"    get the {TOKENIZER} that belongs to the model."
        )


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is optional, and used for the padding token alone
        return {}
    return found if isinstance(found, dict) else {}


def portions(texts: list[str]) -> list[list[str]]:
    """The texts in portions of about `PORTION` characters."""
    portions: list[list[str]] = [[]]
    size = 0
    for text in texts:
        if portions[-1] and size + len(text) > PORTION:
            portions.append([])
            size = 0
        portions[-1].append(text)
        size += len(text)
    return portions if portions[-1] else portions[:-1]
