"""Which language model answers, and how it is reached."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from gristmill.errors import PlanError
from gristmill.llm.backend import Backend
from gristmill.llm.client import Limits
from gristmill.llm.http import HttpBackend, check_variable, checked_url
from gristmill.llm.server import LocalServer, RunningServer
from gristmill.llm.session import WAYS
from gristmill.llm.usage import Prices
from gristmill.stages.contracts import Component
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources


class LanguageModel(Component, ABC):
    """Which language model answers the requests of a stage."""

    way: str = "response_format"
    """How the model gets a schema."""

    @abstractmethod
    def backend(self, has_gpu: bool) -> Backend:
        """Return what sends requests to it. Called in the worker."""

    @abstractmethod
    def limits(self) -> Limits:
        """Return how it may be used."""

    def prices(self) -> Prices:
        """Return its prices."""
        return Prices()

    def running_server(self) -> RunningServer | None:
        """Return the server that the run starts, not started yet; None if there is none."""
        return None

    def resources(self) -> Resources:
        """Return what a worker needs."""
        return Resources(cpus=1)

    def num_workers(self) -> int | None:
        """Return how many workers the stage has; None leaves it to the balancer."""
        return 1


@builtin
@dataclass(eq=False)
class Endpoint(LanguageModel):
    """A server with the HTTP API of OpenAI: vLLM, SGLang, llama.cpp, Ollama, `transformers serve`, or a service.

    - ``model``: the name of the model on the server.
    - ``base_url``: the address, with the path of the API: ``http://127.0.0.1:8000/v1``. Not with ``server``.
    - ``api_key_variable``: the environment variable that holds the key. The key itself never belongs into a pipeline.
    - ``header_variables``: other headers with secrets, each with the environment variable that holds it.
    - ``stream``: receive answers in parts. This keeps connections alive through proxies that cut silent ones.
    - ``stream_usage``: ask for the number of tokens of streamed answers; some servers refuse that.
    - ``timeout_s``: the longest time for an attempt.
    - ``structured``: how the server gets a schema: "response_format", "prompt" (in the instructions), or "auto": by
      ``response_format`` if the server does not ignore it.
    - ``input_price``, ``output_price``: per million tokens, for the account and for budgets.
    - ``server``: a server that the run starts and stops, as `LocalServer` has it: ``{"command": [...]}``.

    The rest is explained at `gristmill.llm.client.Limits`. Only ``model`` is part of the keys of the request cache.
    """

    indifferent = (
        *("base_url", "api_key_variable", "header_variables", "stream", "stream_usage", "timeout_s", "input_price"),
        *("output_price", "server", "concurrency", "max_concurrency", "requests_per_minute", "tokens_per_minute"),
        *("max_attempts", "backoff_s", "max_backoff_s", "unreachable_s", "hedge_after_s"),
    )

    model: str
    base_url: str | None = None
    _: KW_ONLY
    api_key_variable: str | None = None
    header_variables: Mapping[str, str] = field(default_factory=dict)
    stream: bool = False
    stream_usage: bool = True
    timeout_s: float = 600.0
    structured: Literal["auto", "response_format", "prompt"] = "auto"
    input_price: float = 0.0
    output_price: float = 0.0
    server: Mapping[str, Any] | None = None
    concurrency: int | Literal["auto"] = "auto"
    max_concurrency: int = 256
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_attempts: int = 6
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    unreachable_s: float = 300.0
    hedge_after_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(f"model must be the name of a model, not {self.model!r}.")
        if (self.base_url is None) == (self.server is None):
            raise ValueError("an Endpoint has either a base_url or a server that the run starts.")
        if self.base_url is not None:
            checked_url(self.base_url)
        if self.structured not in WAYS:
            raise ValueError(f"structured must be one of {', '.join(map(repr, WAYS))}, not {self.structured!r}.")
        if self.api_key_variable is not None:
            check_variable(self.api_key_variable, "api_key_variable")
        for name, variable in self.header_variables.items():
            check_variable(variable, f"header_variables[{name!r}]")
        self.way = self.structured
        self.limits()
        self.running_server()

    def limits(self) -> Limits:
        return Limits(
            concurrency=self.concurrency,
            max_concurrency=self.max_concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            max_attempts=self.max_attempts,
            backoff_s=self.backoff_s,
            max_backoff_s=self.max_backoff_s,
            unreachable_s=self.unreachable_s,
            hedge_after_s=self.hedge_after_s,
        )

    def prices(self) -> Prices:
        return Prices(self.input_price, self.output_price)

    def running_server(self) -> RunningServer | None:
        if self.server is None:
            return None
        try:
            return RunningServer(LocalServer(**self.server))
        except TypeError as error:
            raise ValueError(f"server: {error}.") from None

    def check_needs(self) -> None:
        if find_spec("aiohttp") is None:
            raise PlanError("an Endpoint needs aiohttp: pip install 'gristmill[llm]'.")
        self._headers()

    def backend(self, has_gpu: bool) -> Backend:
        base_url = "" if self.base_url is None else checked_url(self.base_url)
        return HttpBackend(base_url, self.model, self._headers(), self.stream, self.timeout_s, self.stream_usage)

    def _headers(self) -> dict[str, str]:
        """The headers that hold keys, from the environment."""
        headers = {name: _from_environment(variable) for name, variable in self.header_variables.items()}
        if self.api_key_variable is not None:
            headers["Authorization"] = f"Bearer {_from_environment(self.api_key_variable)}"
        return headers


def _from_environment(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise PlanError(
            f"the environment variable {variable} is not set, which holds the key of a model. Set it where the run "
            "starts, and on a cluster where its workers start."
        )
    if not value.isprintable() or not value.isascii():
        raise PlanError(f"the environment variable {variable} holds something that cannot be a key.")
    return value
