"""Why a request to a language model has no answer."""

from __future__ import annotations


class LLMError(Exception):
    """A request has no answer. The message is for users and never contains a key."""


class Refused(LLMError):
    """The model will never answer this request: it is too long, or not allowed. Other requests may succeed."""


class TryAgain(LLMError):
    """An attempt failed, and another one may succeed.

    ``retry_after`` are the seconds that the server asks to wait. ``overloaded``: the server had too much to do.
    ``unreachable``: there was no server.
    """

    def __init__(
        self, message: str, retry_after: float | None = None, overloaded: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.overloaded = overloaded
        self.unreachable = unreachable


class AttemptsFailed(LLMError):
    """All attempts of a request failed, while others succeeded."""


class Unusable(LLMError):
    """No request can succeed: the key is wrong, or there is no such model, or no server."""


class BudgetSpent(LLMError):
    """The budget does not suffice for another request."""


class BadAnswer(LLMError):
    """An answer does not match the schema. ``raw`` is the answer."""

    def __init__(self, message: str, raw: str) -> None:
        super().__init__(message)
        self.raw = raw
