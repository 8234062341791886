"""Captions rewritten by a model of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.generation import (
    BadPrompt,
    ChatPrompt,
    TextGenerator,
    load_model,
    load_tokenizer,
    require_transformers,
)

if TYPE_CHECKING:
    import torch

MODEL = "Qwen/Qwen2.5-14B-Instruct"


@dataclass(frozen=True)
class RewriterSpec:
    """Which model rewrites texts: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    batch_size: int = 128
    """The most texts that are computed together."""
    most_tokens: int = 512
    """The most tokens of a text that is made."""
    precision: Literal["auto", "float32"] = "auto"
    """On GPUs; "auto" is bfloat16. CPUs compute in float32."""

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        self.checkpoint.check()
        self.checkpoint.check_tokenizer()
        require_transformers(self.checkpoint)

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()

    def load(self, device: torch.device | str = "cpu") -> Rewriter:
        """Load the model. Its files must be on this machine (`fetch`)."""
        model = load_model(self.checkpoint, "texts", device, self.precision)
        tokenizer = load_tokenizer(self.checkpoint)
        return Rewriter(model, tokenizer, self.checkpoint.title, self.batch_size, self.most_tokens)


class Rewriter(TextGenerator):
    """Rewrites texts as an instruction says."""

    def rewritten(self, instruction: str, texts: Sequence[str]) -> list[str | BadPrompt]:
        """Return each text rewritten, in order, or why it is not."""
        made: list[str | BadPrompt] = []
        places, prompts = [], []
        for text in texts:
            try:
                messages = [{"role": "system", "content": instruction}]
                messages.append({"role": "user", "content": self.chats.checked(text)})
                prompts.append(ChatPrompt(self.ids(self.chats.text(messages))))
                places.append(len(made))
                made.append("")
            except BadPrompt as error:
                made.append(error)
        for place, found in zip(places, self.texts(prompts), strict=True):
            made[place] = found
        return made
