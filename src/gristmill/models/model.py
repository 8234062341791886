"""The interface of a model to the inference engine: a trunk makes hidden states, and a head reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from gristmill.errors import ModelError

if TYPE_CHECKING:
    import torch

    from gristmill.models.tokens import TokenLists

Reads = Literal["all", "first", "last"]
"""The hidden states that a head reads: of all tokens of a text, or of its first or last one. A trunk computes no others
where it can avoid it."""
ENDLESS = 1 << 30
"""`Trunk.max_tokens` of a trunk that takes texts of any length."""


class Trunk(ABC):
    """The layers of a model. One instance belongs to one device and one worker."""

    device: torch.device
    max_tokens: int
    """The longest sequence that it takes."""
    vocabulary: int
    """Tokens that it knows: their ids are less than this."""
    batch_tokens: int = 65_536
    """How many tokens it computes at a time by default: enough to fill a large GPU."""

    @abstractmethod
    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        """The last hidden states of these texts, on the device: one row per token, or per text for "first" and "last".

        Texts do not influence each other. On a GPU this returns before the computation is done.
        """


class Head(ABC):
    """The end of a model: from hidden states to one row of numbers per text."""

    reads: Reads
    width: int
    """Numbers per text."""

    @abstractmethod
    def to(self, device: torch.device, dtype: torch.dtype) -> Head:
        """Put its weights on a device. Called once, before the first text."""

    @abstractmethod
    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """float32, (texts, width). ``offsets`` (int64, on the device): where each text begins in ``hidden``."""


class Model:
    """A trunk with a head."""

    def __init__(self, trunk: Trunk, head: Head) -> None:
        self.trunk = trunk
        self.head = head

    @property
    def device(self) -> torch.device:
        return self.trunk.device

    def check(self, tokens: TokenLists) -> None:
        """Raise a `ModelError` for tokens that it cannot take. On a GPU they would end the process."""
        lengths, ids, trunk = tokens.lengths, tokens.ids, self.trunk
        if not len(lengths):
            return
        if lengths.min() < 1:
            raise ModelError("a text has no tokens, but the model needs one.\n    give it one in the column of tokens.")
        if lengths.max() > trunk.max_tokens:
            raise ModelError(
                f"a text has {lengths.max():,} tokens, but the model takes at most {trunk.max_tokens:,}.\n"
                "    set max_seq_length, or cut the lists in the column of tokens."
            )
        wrong = ids[(ids < 0) | (ids >= trunk.vocabulary)]
        if len(wrong):
            raise ModelError(
                f"a text has the token {wrong[0]:,}, but the model knows only 0 to {trunk.vocabulary - 1:,}.\n"
                "    make tokens with the tokenizer of the model's own checkpoint."
            )

    def launch(self, tokens: TokenLists) -> torch.Tensor:
        """Begin to compute the rows of these texts. On a GPU the tensor is filled later. Any thread may call this."""
        import torch

        with torch.inference_mode():
            hidden = self.trunk.hidden(tokens, self.head.reads)
            offsets = torch.from_numpy(tokens.offsets)
            if hidden.is_cuda:
                offsets = offsets.pin_memory()  # or else the copy would wait for all that was launched before
            return self.head.rows(hidden, offsets.to(hidden.device, non_blocking=True))
