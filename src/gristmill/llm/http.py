"""Any server with the HTTP API of OpenAI: chat and text completions, streamed or not."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gristmill import fast_json
from gristmill.llm.backend import Backend
from gristmill.llm.errors import Refused, TryAgain, Unusable
from gristmill.llm.requests import Answer, Request

if TYPE_CHECKING:
    import aiohttp

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OVERLOADED = (429, 503, 529)
_AGAIN = (408, 409, 425)
_UNUSABLE = (401, 402, 403, 404, 405)
_LONGEST_ERROR = 300
_LONGEST_RETRY_AFTER_S = 600.0
_CONNECT_S = 20.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_variable(name: str, what: str) -> None:
    """Raise ValueError if a text is not the name of an environment variable. The text is not shown: it may be a key."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"{what} must be the name of an environment variable that holds the key, such as OPENAI_API_KEY, not the "
            "key itself. Keys never belong into pipelines."
        )


def checked_url(url: str) -> str:
    """Return the base URL of a server without a slash at its end. Raise ValueError if it cannot be one."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url must be a URL such as http://127.0.0.1:8000/v1.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "base_url must not have a user, a password or a query. Name the environment variable of the key in "
            "api_key_variable, or in header_variables."
        )
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether a URL is one of this machine."""
    return (urlsplit(url).hostname or "") in LOOPBACK


@dataclass
class HttpBackend(Backend):
    """One server. ``headers`` hold keys: they are searched for in all that the server sends, and taken out."""

    base_url: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: bool = False
    timeout_s: float = 600.0
    with_usage: bool = True
    """Ask for the tokens of streamed answers. Some servers refuse the option."""

    def __post_init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._secrets = [
            secret.encode() for value in self.headers.values() for secret in {value, value.rpartition(" ")[2]} if secret
        ]
        self._secrets.sort(key=len, reverse=True)

    @property
    def model(self) -> str:
        return self.name

    async def open(self) -> None:
        import aiohttp

        headers = {"Content-Type": "application/json", "User-Agent": "gristmill", **self.headers}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=_CONNECT_S),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=not is_loopback(self.base_url),  # proxies are for other machines
            read_bufsize=1 << 18,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def complete(self, request: Request) -> Answer:
        begun = time.monotonic()
        path = "/chat/completions" if request.messages is not None else "/completions"
        try:
            text, reason, used = await self._sent(path, fast_json.dumps(self._body(request)))
        except TimeoutError:
            message = f"no answer within {self.timeout_s:g} s"
            raise TryAgain(message, overloaded=True) from None
        except (OSError, _client_error()) as error:
            raise self._lost(error) from None
        inputs, outputs = used.get("prompt_tokens"), used.get("completion_tokens")
        return Answer(
            text=text,
            finish_reason=reason,
            input_tokens=request.estimated_tokens() if inputs is None else int(inputs),
            output_tokens=len(text) // 4 if outputs is None else int(outputs),
            latency_s=time.monotonic() - begun,
        )

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, **request.parameters}
        if request.messages is not None:
            body["messages"] = request.messages
        else:
            body["prompt"] = request.prompt
        if request.schema is not None:
            form = {"name": "answer", "schema": request.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if self.stream:
            body["stream"] = True
            if self.with_usage:
                body["stream_options"] = {"include_usage": True}
        return body

    async def _sent(self, path: str, body: bytes) -> tuple[str, str, Mapping[str, Any]]:
        assert self._session is not None, "open() comes first"
        async with self._session.post(self.base_url + path, data=body, allow_redirects=False) as response:
            if response.status != 200:
                raise self._error(response.status, response.headers, await response.read())
            if self.stream and "event-stream" in response.headers.get("Content-Type", ""):
                return await self._streamed(response)
            return _whole(self._clean(await response.read()))

    async def _streamed(self, response: aiohttp.ClientResponse) -> tuple[str, str, Mapping[str, Any]]:
        pieces: list[str] = []
        reason = ""
        used: Mapping[str, Any] = {}
        async for data in _events(response):
            event = _parsed(data)
            if event.get("error"):
                raise TryAgain(f"the server failed within an answer: {self._shown(data)}")
            used = event.get("usage") or used
            for choice in event.get("choices") or ():
                piece = choice.get("text") or (choice.get("delta") or {}).get("content")
                if piece:
                    pieces.append(piece)
                reason = choice.get("finish_reason") or reason
        if not reason:
            raise TryAgain("the stream of the answer ended early")
        return self._clean("".join(pieces).encode()).decode(), reason, used

    def _error(self, status: int, headers: Mapping[str, str], body: bytes) -> Exception:
        text = f"HTTP {status}: {self._shown(body)}".removesuffix(": ")
        if status in _UNUSABLE:
            return Unusable(f"{self.base_url} refuses all requests for the model {self.name!r}: {text}")
        if status in _OVERLOADED:
            return TryAgain(text, retry_after(headers), overloaded=True)
        if status >= 500 or status in _AGAIN:
            return TryAgain(text, retry_after(headers))
        return Refused(text)

    def _lost(self, error: Exception) -> TryAgain:
        import aiohttp

        unreachable = isinstance(error, aiohttp.ClientConnectorError)
        words = "cannot be reached" if unreachable else "lost the connection"
        text = self._clean(f"{type(error).__name__}: {error}".encode()).decode()[:_LONGEST_ERROR]
        return TryAgain(f"{self.base_url} {words}: {text}", unreachable=unreachable)

    def _shown(self, body: bytes) -> str:
        text = self._clean(body[: 1 << 16]).decode("utf-8", "backslashreplace")
        try:
            found = fast_json.loads(text)
            error = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
            shown = error.get("message", error) if isinstance(error, dict) else error
            text = shown if isinstance(shown, str) else fast_json.dumps(shown).decode()
        except ValueError:
            pass
        text = " ".join(text.split())
        return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + " ..."

    def _clean(self, data: bytes) -> bytes:
        for secret in self._secrets:
            if secret in data:
                data = data.replace(secret, b"***")
        return data


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a server asks to wait: a number, or a date."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = email.utils.parsedate_to_datetime(value).timestamp()
        except (ValueError, TypeError):
            return None
        seconds = at - (time.time() if now is None else now)
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER_S) if seconds == seconds else None


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of server-sent events, until the stream ends or says that it is done."""
    async for line in response.content:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            if data:
                yield data


def _whole(body: bytes) -> tuple[str, str, Mapping[str, Any]]:
    found = _parsed(body)
    try:
        choice = found["choices"][0]
        message = choice.get("message")
        text = choice.get("text") if message is None else message.get("content")
    except (LookupError, TypeError, AttributeError):
        raise TryAgain("the server sent something else than a completion") from None
    return text or "", choice.get("finish_reason") or "stop", found.get("usage") or {}


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        found = fast_json.loads(data)
    except ValueError:
        raise TryAgain("the server sent JSON that is cut or damaged") from None
    if not isinstance(found, dict):
        raise TryAgain("the server sent something else than an object")
    return found


def _client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError
