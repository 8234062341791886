"""A request to a language model, its key, and the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from gristmill import fast_json

Message = Mapping[str, Any]
"""``{"role": ..., "content": ...}``, as the API of OpenAI has it."""
KEY_BYTES = 20
_CHARACTERS_PER_TOKEN = 3.5
"""Of English, for estimates before an answer has arrived."""
_IMAGE_TOKENS = 1000


@dataclass(frozen=True)
class Request:
    """Everything that an answer depends on, but for the model."""

    messages: Sequence[Message] | None = None
    """A chat; None: ``prompt`` is continued."""
    prompt: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Temperature, seed, most tokens and so on, by their names in the API of OpenAI."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer, for models that can be constrained."""
    sample: int = 0
    """The number of the answer, if several are wanted. It is not sent."""

    def key(self, model: str) -> bytes:
        """Return a hash of the request to a model. Equal requests have equal keys, in all processes and versions."""
        parts = [model, self.messages, self.prompt, _sorted(self.parameters), _sorted(self.schema), self.sample]
        return hashlib.blake2b(fast_json.dumps(parts), digest_size=KEY_BYTES).digest()

    def estimated_tokens(self) -> int:
        """About how many tokens the prompt has."""
        characters = len(self.prompt)
        images = 0
        for message in self.messages or ():
            content = message.get("content")
            for part in [content] if isinstance(content, str) else content or ():
                if isinstance(part, str):
                    characters += len(part)
                elif part.get("type") == "text":
                    characters += len(part["text"])
                else:
                    images += 1
        return int(characters / _CHARACTERS_PER_TOKEN) + images * _IMAGE_TOKENS + 8

    def followed_by(self, answer: str, words: str) -> Self:
        """Return the request that sends an answer back with a comment."""
        if self.messages is None:
            return replace(self, prompt=f"{self.prompt}{answer}\n\n{words}\n")
        more = [{"role": "assistant", "content": answer}, {"role": "user", "content": words}]
        return replace(self, messages=[*self.messages, *more])


@dataclass(frozen=True)
class Answer:
    """What a model answered."""

    text: str
    finish_reason: str = "stop"
    """ "length" if the answer was cut at the most tokens."""
    input_tokens: int = 0
    output_tokens: int = 0
    latency_s: float = 0.0

    def stored(self) -> bytes:
        """Return the answer as bytes for the cache."""
        parts = [self.text, self.finish_reason, self.input_tokens, self.output_tokens, round(self.latency_s, 4)]
        return fast_json.dumps(parts)

    @classmethod
    def of_stored(cls, stored: bytes) -> Answer:
        """Return the answer of the cache."""
        return cls(*fast_json.loads(stored))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value
