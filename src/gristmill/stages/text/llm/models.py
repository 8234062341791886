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
from gristmill.llm.client import RequestLimits
from gristmill.llm.http import HttpBackend, check_variable, checked_url
from gristmill.llm.server import LocalServer, RunningServer
from gristmill.llm.session import WAYS
from gristmill.llm.usage import Prices
from gristmill.stages.contracts import Component
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources


class ChatModel(Component, ABC):
    """Which language model answers the requests of a stage."""

    way: str = "response_format"
    """How the model gets a schema."""

    @abstractmethod
    def backend(self, has_gpu: bool) -> Backend:
        """Return what sends requests to it. Called in the worker."""

    @abstractmethod
    def limits(self) -> RequestLimits:
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
class Endpoint(ChatModel):
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

    `gristmill.llm.client.RequestLimits` explains the rest. Only ``model`` is part of the keys of the request cache.
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

    def limits(self) -> RequestLimits:
        return RequestLimits(
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


@builtin
@dataclass(eq=False)
class TransformersModel(ChatModel):
    """A causal language model of transformers in the workers, with a worker for each GPU.

    Requests share the steps of the model: each leaves when its answer is complete, and the next one gets its place. So
    short answers do not wait for long ones. Answers to requests with a schema always match it. The random numbers of a
    request depend on its seed, or on the request if it has none.

    - ``model``: a folder, or a repository on the Hugging Face hub.
    - ``max_length``: the most tokens of a prompt and its answer together.
    - ``slots``: the most requests that are computed together; fewer if the memory of the GPU does not suffice.
    - ``dtype``: the precision, such as "bfloat16"; "auto": bfloat16 on a GPU, float32 on CPUs.
    - ``gpus``: GPUs per worker; 0: CPUs only.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.

    Parameters are ``max_tokens``, ``temperature``, ``top_p`` and ``seed``. Models with sliding windows or other kinds
    of attention, and images, need an `Endpoint`.
    """

    indifferent = ("slots", "gpus", "cache_dir", "hf_token")

    model: str
    _: KW_ONLY
    max_length: int = 4096
    slots: int = 256
    dtype: str = "auto"
    gpus: float = 1.0
    cache_dir: str | None = None
    hf_token: str | bool | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, count in (("max_length", self.max_length), ("slots", self.slots)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {count!r}.")

    def limits(self) -> RequestLimits:
        return RequestLimits(concurrency=2 * self.slots, max_attempts=2)  # some wait, so that slots never do

    def resources(self) -> Resources:
        return Resources(cpus=1, gpus=self.gpus)

    def num_workers(self) -> int | None:
        return None if self.gpus else 1

    def check_needs(self) -> None:
        for module in ("torch", "transformers", "llguidance"):
            if find_spec(module) is None:
                raise PlanError(f"a TransformersModel needs {module}: pip install 'gristmill[llm,models]'.")

    def backend(self, has_gpu: bool) -> Backend:
        from gristmill.llm.local.backend import LocalBackend, loader

        options = {"cache_dir": self.cache_dir, "token": self.hf_token}
        device = "cuda" if has_gpu else "cpu"
        load = loader(self.model, device, self.dtype, {k: v for k, v in options.items() if v is not None})
        return LocalBackend(self.model, load, self.slots, self.max_length)


@builtin
@dataclass(eq=False)
class VLLMModel(ChatModel):
    """A model of vLLM in the workers, with a worker for each group of GPUs. vLLM has to be installed.

    - ``model``: a folder, or a repository on the Hugging Face hub.
    - ``gpus``: GPUs per worker, which share the model.
    - ``concurrency``: requests that vLLM gets at the same time.
    - ``options``: other arguments of the engine, such as ``max_model_len`` and ``gpu_memory_utilization``.

    Answers to requests with a schema are constrained by vLLM.
    """

    indifferent = ("gpus", "concurrency")

    model: str
    _: KW_ONLY
    gpus: int = 1
    concurrency: int = 512
    options: Mapping[str, Any] = field(default_factory=dict)

    def limits(self) -> RequestLimits:
        return RequestLimits(concurrency=self.concurrency, max_attempts=2)

    def resources(self) -> Resources:
        return Resources(cpus=1, gpus=self.gpus)

    def num_workers(self) -> int | None:
        return None

    def check_needs(self) -> None:
        if find_spec("vllm") is None:
            raise PlanError("a VLLMModel needs vLLM: pip install vllm. Or use a TransformersModel, or an Endpoint.")

    def backend(self, has_gpu: bool) -> Backend:
        from gristmill.llm.vllm_backend import VLLMBackend

        return VLLMBackend(self.model, {"tensor_parallel_size": self.gpus, **self.options})


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
