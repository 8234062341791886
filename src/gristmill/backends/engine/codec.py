"""Messages as plain tuples, which `marshal` takes and which are cheap to pickle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

M = TypeVar("M", bound=tuple[Any, ...])
Plain = tuple[int, tuple[Any, ...], list[tuple[Any, ...]] | None]
"""The number of a message's class, its fields, and the entries of its last field if that is a list of them."""


class Codec(Generic[M]):
    """Encodes messages, which are `NamedTuple`s, and decodes them in another process with the same ``classes``.

    ``entries`` names the classes of messages whose last field is a list of `NamedTuple`s, with the class of these.
    """

    def __init__(self, classes: Sequence[type[Any]], entries: Mapping[type[Any], type[Any]]) -> None:
        self._numbers = {cls: (number, cls in entries) for number, cls in enumerate(classes)}
        self._classes = list(classes)
        # `tuple.__new__` makes a `NamedTuple` of its values faster than a call of the class.
        self._make_entry = [partial(tuple.__new__, entries.get(cls, tuple)) for cls in classes]

    def encode(self, messages: Iterable[M]) -> list[Plain]:
        plain: list[Plain] = []
        for message in messages:
            number, has_entries = self._numbers[type(message)]
            if has_entries:
                plain.append((number, message[:-1], [entry[:] for entry in message[-1]]))
            else:
                plain.append((number, message[:], None))
        return plain

    def decode(self, plain: Iterable[Plain]) -> list[M]:
        messages: list[M] = []
        new = tuple.__new__
        for number, fields, entries in plain:
            if entries is not None:
                fields = (*fields, list(map(self._make_entry[number], entries)))
            messages.append(new(self._classes[number], fields))
        return messages
