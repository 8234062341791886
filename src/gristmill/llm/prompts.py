"""Prompts as Jinja templates. Templates run in a sandbox, since they may come from files."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.llm.errors import Refused
from gristmill.llm.requests import Message

if TYPE_CHECKING:
    from jinja2 import Template

_KINDS = {b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp"}


class PromptTemplate:
    """A prompt with the columns of a document as variables: ``Summarize: {{ text }}``."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"a prompt must be a text that is not empty, not {text!r}.")
        self.text = text
        self.columns = sorted(_columns(text))
        """The variables that it names."""

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "columns": self.columns}  # a compiled template cannot be pickled

    def render(self, document: Mapping[str, Any]) -> str:
        """Return the prompt for a document. Raise `Refused` if it cannot be made."""
        import jinja2

        try:
            return self._template.render(document)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise Refused(f"the prompt cannot be made: {type(error).__name__}: {error}") from None

    @cached_property
    def _template(self) -> Template:
        made: Template = _environment().from_string(self.text)
        return made


def _environment() -> Any:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=False,
        finalize=lambda value: "" if value is None else value,
    )


def _columns(text: str) -> set[str]:
    import jinja2
    from jinja2 import meta

    try:
        return meta.find_undeclared_variables(_environment().parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the prompt is not a Jinja template: line {error.lineno}: {error.message}.") from None


def chat(
    prompt: str,
    system: str | None = None,
    examples: Sequence[tuple[str, str]] = (),
    images: Sequence[bytes] = (),
) -> list[Message]:
    """Return the messages of a chat: instructions, examples, then the prompt with its images."""
    messages: list[Message] = [] if not system else [{"role": "system", "content": system}]
    for question, answer in examples:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    content: Any = prompt
    if images:
        content = [*({"type": "image_url", "image_url": {"url": data_url(one)}} for one in images)]
        content.append({"type": "text", "text": prompt})
    return [*messages, {"role": "user", "content": content}]


def data_url(image: bytes) -> str:
    """Return an encoded image as a URL that holds it."""
    kind = next((kind for begin, kind in _KINDS.items() if image.startswith(begin)), "jpeg")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def instructed(messages: Sequence[Message], words: str) -> list[Message]:
    """Return messages with more instructions at their beginning."""
    first, rest = (messages[0], messages[1:]) if messages and messages[0]["role"] == "system" else (None, messages)
    text = words if first is None else f"{first['content']}\n\n{words}"
    return [{"role": "system", "content": text}, *rest]
