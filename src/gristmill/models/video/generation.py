"""Texts by models of transformers: batches by length, the most probable token each time, and out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import OUT_OF_MEMORY

if TYPE_CHECKING:
    import torch

CHAT = "<|im_start|>{role}\n{content}<|im_end|>\n"
"""One message of a chat, in the format of Qwen, for checkpoints that have no template."""
TOO_LONG = "the prompt is too long"
TOO_LARGE = "the frames do not fit into the memory of the GPU"
SPECIAL = "the prompt has a special token"
NO_PROMPT = "no prompt"


class BadPrompt(ValueError):
    """A prompt that gets no text. Its text is the reason in quarantine."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """One input of a model."""

    ids: Sequence[int]
    """Its tokens."""
    extra: Any = None
    """What belongs to it besides tokens: frames."""


class Chats:
    """Chats as texts and tokens, by the tokenizer of a checkpoint."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def text(self, messages: list[dict[str, Any]]) -> str:
        """Return a chat as one text, by the template of the checkpoint."""
        if self.tokenizer.chat_template:
            text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return text
        parts = [CHAT.format(role=one["role"], content=_plain(one["content"])) for one in messages]
        return "".join(parts) + "<|im_start|>assistant\n"

    def checked(self, text: str | None) -> str:
        """Return a text of the user's for a prompt. Raise `BadPrompt` if it is empty or has a special token."""
        if text is None or not text.strip():
            raise BadPrompt(NO_PROMPT)
        if any(token in text for token in self.tokenizer.all_special_tokens):
            raise BadPrompt(SPECIAL)
        return text

    def ids(self, text: str, most: int) -> list[int]:
        """Return the tokens of a prompt. Raise `BadPrompt` if there are more than ``most``."""
        found: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(found) > most:
            raise BadPrompt(TOO_LONG)
        return found


class TextGenerator:
    """Makes texts of prompts. It belongs to one device and one worker.

    Each token is the most probable one, so the same prompts make the same texts. When a batch runs out of GPU memory,
    its size is halved, and it stays.
    """

    def __init__(self, model: Any, tokenizer: Any, title: str, size: int, most_tokens: int) -> None:
        """``size``: the most prompts that are computed together. ``most_tokens``: the most tokens of a text."""
        self.model = model
        self.chats = Chats(tokenizer)
        self.title = title
        self.size = size
        self.most_tokens = most_tokens
        self.longest = _longest(model.config)
        self.counters: dict[str, int] = {}
        self._config = self._generation()

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        found: torch.device = self.model.device
        return found

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a prompt. Raise `BadPrompt` if it is too long."""
        return self.chats.ids(text, self.longest - self.most_tokens)

    def texts(self, prompts: Sequence[ChatPrompt]) -> list[str | BadPrompt]:
        """Return the text for each prompt, in order; why there is none for one that does not fit into memory."""
        import torch

        made: list[str | BadPrompt] = [BadPrompt(TOO_LARGE)] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda place: (-len(prompts[place].ids), place))
        done = 0
        while done < len(order):
            places = order[done : done + self.size]
            try:
                for place, text in zip(places, self._batch([prompts[one] for one in places]), strict=True):
                    made[place] = text
            except torch.OutOfMemoryError:
                pass
            else:
                done += len(places)
                continue
            # here the traceback no longer holds the tensors of the batch
            torch.cuda.empty_cache()
            self.counters[OUT_OF_MEMORY] = self.counters.get(OUT_OF_MEMORY, 0) + 1
            if len(places) == 1:
                done += 1
            else:
                self.size = len(places) // 2
        return made

    def extra(self, prompts: Sequence[ChatPrompt], ids: torch.Tensor) -> dict[str, Any]:
        """Return what the model gets besides tokens."""
        return {}

    def _batch(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        import torch

        length = max(len(one.ids) for one in prompts)
        ids = torch.full((len(prompts), length), self._config.pad_token_id, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):  # texts begin at the right end
            ids[row, length - len(prompt.ids) :] = torch.tensor(prompt.ids)
            mask[row, length - len(prompt.ids) :] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids, attention_mask=mask, generation_config=self._config, **self.extra(prompts, ids)
            )
        texts: list[str] = self.chats.tokenizer.batch_decode(found[:, length:].tolist(), skip_special_tokens=True)
        return [text.strip() for text in texts]

    def _generation(self) -> Any:
        from transformers import GenerationConfig

        theirs = self.model.generation_config
        ends = theirs.eos_token_id if theirs.eos_token_id is not None else self.chats.tokenizer.eos_token_id
        if ends is None:
            raise ModelError(
                f"{self.title} has no token that ends a text: eos_token_id.\n    get the complete checkpoint."
            )
        first = ends[0] if isinstance(ends, list | tuple) else ends
        pad = self.chats.tokenizer.pad_token_id
        return GenerationConfig(
            max_new_tokens=self.most_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=ends,
            pad_token_id=first if pad is None else pad,
        )


def load_tokenizer(checkpoint: Checkpoint) -> Any:
    """Load the tokenizer of a checkpoint with transformers."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(checkpoint.folder()), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{checkpoint.title}: its tokenizer cannot be loaded ({str(error).splitlines()[0]}).\n"
            "    get the complete checkpoint."
        ) from None


def load_model(checkpoint: Checkpoint, auto: str, device: torch.device | str, precision: str) -> Any:
    """Load a model with a class of transformers, in 16 bits on a GPU and in 32 on CPUs."""
    import torch
    import transformers

    place = torch.device(device)
    dtype = torch.float32 if place.type == "cpu" or precision == "float32" else torch.bfloat16
    transformers.logging.disable_progress_bar()
    kinds: Any = {
        "images": transformers.AutoModelForImageTextToText,
        "texts": transformers.AutoModelForCausalLM,
    }
    try:
        model = kinds[auto].from_pretrained(
            str(checkpoint.folder()), dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            f"{checkpoint.title} cannot be loaded ({str(error).splitlines()[0]}).\n    get the complete checkpoint."
        ) from None
    return model.eval().requires_grad_(False).to(place)


def require_transformers(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if the packages that compute are not installed."""
    from importlib.util import find_spec

    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise ModelError(f"{checkpoint.title} needs the package {package}.\n    pip install 'gristmill[models]'")


def _longest(config: Any) -> int:
    """The most tokens of a prompt and its text."""
    return int(config.get_text_config().max_position_embeddings)


def _plain(content: Any) -> str:
    """The content of a message without a template: a text, or parts of which one is a video."""
    if isinstance(content, str):
        return content
    return "".join(VIDEO_PART if one["type"] == "video" else one["text"] for one in content)


VIDEO_PART = "<|vision_start|><|video_pad|><|vision_end|>"
"""A video in a prompt, before its tokens are counted."""
