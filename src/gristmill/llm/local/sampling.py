"""The choice of the next token: the random numbers of a request depend on its seed only, not on its batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.lazy import Array

if TYPE_CHECKING:
    import torch

_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_WORD = 0xFFFFFFFF
_ALL = -1


@dataclass(frozen=True)
class Settings:
    """How the tokens of one request are chosen."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


class Sampler:
    """Chooses a token for each slot by the Gumbel trick: the largest of logits plus noise is a sample of the softmax.

    The noise of a token is a hash of the seed of its request, the number of the step, and the token.
    """

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        import torch

        self._vocabulary = vocabulary
        self._temperature = torch.ones(slots, device=device)
        self._noise = torch.zeros(slots, device=device)
        self._top_p = torch.ones(slots, device=device)
        self._seed = torch.zeros(slots, dtype=torch.int64, device=device)
        self._step = torch.zeros(slots, dtype=torch.int64, device=device)
        self._masks = torch.full((slots, -(-vocabulary // 32)), _ALL, dtype=torch.int32, device=device)
        self._bits = torch.arange(32, dtype=torch.int32, device=device)
        self._token = torch.arange(vocabulary, device=device)
        self._samples: dict[int, bool] = {}
        self._cuts: dict[int, bool] = {}
        self.is_constrained = False

    @property
    def kind(self) -> str:
        """What a step has to compute. A CUDA graph is made for each kind."""
        samples = "sample" if any(self._samples.values()) else "most probable"
        return samples + " cut" * any(self._cuts.values()) + " constrained" * self.is_constrained

    def set(self, slot: int, settings: Settings) -> None:
        """Begin a request in a slot."""
        is_random = settings.temperature > 0
        self._samples[slot], self._cuts[slot] = is_random, is_random and settings.top_p < 1
        self._temperature[slot] = settings.temperature if is_random else 1.0
        self._noise[slot] = float(is_random)
        self._top_p[slot] = settings.top_p if is_random else 1.0
        self._seed[slot] = settings.seed & _WORD
        self._step[slot] = 0
        self._masks[slot] = _ALL

    def clear(self, slot: int) -> None:
        """End a request."""
        self._samples.pop(slot, None)
        self._cuts.pop(slot, None)

    def allow(self, slots: torch.Tensor, masks: Array) -> None:
        """Set the bits of the tokens that are allowed next in some slots."""
        import torch

        self._masks[slots] = torch.from_numpy(masks).to(self._masks.device)

    def unconstrain(self, slot: int) -> None:
        """Allow all tokens in a slot."""
        self._masks[slot] = _ALL

    def state(self) -> torch.Tensor:
        """What a step changes."""
        return self._step.clone()

    def restore(self, state: torch.Tensor) -> None:
        """Undo a step."""
        self._step.copy_(state)

    def chosen(self, logits: torch.Tensor, slots: torch.Tensor | None) -> torch.Tensor:
        """Return the next token of some slots, or of all."""
        import torch

        kind = self.kind
        every = slice(None) if slots is None else slots
        scores = logits.float()
        if "constrained" in kind:
            bits = (self._masks[every][:, :, None] >> self._bits) & 1
            scores = scores.masked_fill(bits.flatten(1)[:, : self._vocabulary] == 0, -torch.inf)
        if "sample" in kind:
            scores = scores / self._temperature[every, None]
            if "cut" in kind:
                scores = self._cut(scores, self._top_p[every, None])
            scores = scores + self._gumbel(every) * self._noise[every, None]
        self._step[every] += 1
        return scores.argmax(-1)

    def _cut(self, scores: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
        """Remove the least probable tokens, so that at least ``top_p`` of the probability is left."""
        import torch

        ordered, order = scores.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        removed = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p)
        return scores.masked_fill(removed, -torch.inf)

    def _gumbel(self, every: slice | torch.Tensor) -> torch.Tensor:
        first, second, third = _PRIMES
        base = (self._seed[every] * first + self._step[every] * second) & _WORD
        mixed = (base[:, None] ^ (self._token * third & _WORD)[None]) & _WORD
        for shift, prime in ((15, second), (13, third), (16, first)):
            mixed = ((mixed ^ (mixed >> shift)) * prime) & _WORD
        uniform = ((mixed ^ (mixed >> 16)).double() + 0.5) / 2**32
        return -(-uniform.log()).log().float()
