"""What a modifier is: a text in, a text out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.stages.component import Component

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


class DocumentModifier(Component):
    """Changes texts. Define one of the two methods; the other follows.

        class Shout(DocumentModifier):
            def modify_document(self, text: str) -> str:
                return text.upper()

    Results depend on the text alone. A text that needs no change is given back as it is. `count` adds to the ledger.
    """

    name: str = ""
    """What it is called in messages: the class's name with underscores, unless it says otherwise."""
    triggers: tuple[bytes, ...] | None = None
    """Patterns over UTF-8: a text with none of them is not changed, and is not even decoded. None: any may change.

    They are looked for one by one, which is fast for those that begin with a literal or one class of bytes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def modify_document(self, text: str) -> Any:
        """Return the new text, or another value (a number, a list) for a field of its own."""
        self._one_of()
        return self.modify_batch([text])[0]

    def modify_batch(self, texts: Sequence[str]) -> list[Any]:
        """Do the same for many texts: return one value for each, in order."""
        self._one_of()
        return [self.modify_document(text) for text in texts]

    def candidates(self, texts: Texts) -> Array:
        """False for each text that is known to stay as it is: by `triggers`, unless this is overridden."""
        if self.triggers is None:
            return np.ones(len(texts), dtype=bool)
        found = np.zeros(len(texts), dtype=bool)
        searches = [_compiled(pattern).search for pattern in self.triggers]
        for i, text in enumerate(raw(texts)):
            for search in searches:
                if search(text):
                    found[i] = True
                    break
        return found

    def count(self, what: str, number: int = 1) -> None:
        """Add to a counter of the ledger: ``self.count("redacted email", 3)``."""
        if number:
            self.counters[what] += number

    @property
    def counters(self) -> Counter[str]:
        """What was counted since it was last taken."""
        counters: Counter[str] = self.__dict__.setdefault("_counters", Counter())
        return counters

    def take_counters(self) -> Counter[str]:
        """The counters, which begin anew."""
        taken: Counter[str] = self.__dict__.pop("_counters", Counter())
        return taken

    def setup(self) -> None:
        """In each worker, before the first document: open what cannot be shared."""

    def _one_of(self) -> None:
        kind = type(self)
        methods = ("modify_document", "modify_batch")
        if all(getattr(kind, method) is getattr(DocumentModifier, method) for method in methods):
            raise TypeError(f"{kind.__name__} defines neither modify_document nor modify_batch: it needs one of them.")


def raw(texts: Texts) -> Iterator[memoryview]:
    """The UTF-8 of each text, where it is."""
    data: memoryview = texts.data.data
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        yield data[start:end]


@lru_cache(maxsize=256)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)
