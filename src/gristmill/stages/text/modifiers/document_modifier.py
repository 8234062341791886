"""The base class of modifiers: a text in, a text out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.contracts import Component


class DocumentModifier(Component):
    """Changes texts. Define one of the two methods; the other follows.

        class Shout(DocumentModifier):
            def modify_document(self, text: str) -> str:
                return text.upper()

    Results depend on the text alone. A text that needs no change is returned as it is. `count` adds to the ledger.
    """

    name: str = ""
    """The name in messages. Default: the class's name in lower case with underscores."""
    triggers: tuple[bytes, ...] | None = None
    """Patterns over UTF-8. A text without any of them is not changed, and not even decoded. None: any text may change.

    They are searched one by one, which is fast for patterns that begin with a literal or one class of bytes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def modify_document(self, text: str) -> Any:
        """Return the new text, or another value (a number, a list) for a field of its own."""
        self._check()
        return self.modify_batch([text])[0]

    def modify_batch(self, texts: Sequence[str]) -> list[Any]:
        """Do the same for many texts: return one value for each, in order."""
        self._check()
        return [self.modify_document(text) for text in texts]

    def candidates(self, texts: Texts) -> Array:
        """Return False for each text that is known to stay as it is. The default uses `triggers`."""
        if self.triggers is None:
            return np.ones(len(texts), dtype=bool)
        searches = [_compiled(pattern).search for pattern in self.triggers]
        found = (any(search(text) for search in searches) for text in raw(texts))
        return np.fromiter(found, dtype=bool, count=len(texts))

    def count(self, what: str, number: int = 1) -> None:
        """Add to a counter of the ledger: ``self.count("redacted email", 3)``."""
        if number:
            self.counters[what] += number

    @cached_property
    def counters(self) -> Counter[str]:
        """The counts since `take_counters` was last called."""
        return Counter()

    def take_counters(self) -> Counter[str]:
        """Return the counters and reset them."""
        taken = self.counters.copy()
        self.counters.clear()
        return taken

    def setup(self) -> None:
        """Open in each worker, before the first document, what cannot be shared."""

    def _check(self) -> None:
        kind, base = type(self), DocumentModifier
        if kind.modify_document is base.modify_document and kind.modify_batch is base.modify_batch:
            raise TypeError(f"{kind.__name__} defines neither modify_document nor modify_batch: it needs one of them.")


def raw(texts: Texts) -> Iterator[memoryview]:
    """Yield the UTF-8 of each text without copying it."""
    data: memoryview = texts.data.data
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        yield data[start:end]


@lru_cache(maxsize=256)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)
