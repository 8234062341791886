"""The contract of back ends: one attempt of one request."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gristmill.llm.requests import Answer, Request


class Backend(ABC):
    """Sends requests to a model. It makes one attempt and knows neither retries nor limits nor the cache."""

    constrains: bool = False
    """Whether answers to requests with a schema always match it. Otherwise this is found out by a request."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The name of the model in the keys of the cache: the same for all places where it runs."""

    async def open(self) -> None:
        """Connect, or load the model. Called once, in the event loop of the worker, before the first request."""
        return

    @abstractmethod
    async def complete(self, request: Request) -> Answer:
        """Make one attempt. Raise `TryAgain`, `Refused` or `Unusable` if there is no answer."""

    async def close(self) -> None:
        """Release everything."""
        return
