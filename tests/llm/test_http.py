"""The HTTP back end against a real server in another process."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gristmill.llm.errors import Refused, TryAgain, Unusable
from gristmill.llm.http import HttpBackend, check_variable, checked_url, retry_after
from gristmill.llm.requests import Answer, Request

CHAT = [{"role": "user", "content": "REPLY<<yes \u00e4\u20ac\U0001f600 no>>"}]


def complete(base_url: str, request: Request, attempts: int = 1, **options: Any) -> list[Answer | Exception]:
    async def main() -> list[Answer | Exception]:
        backend = HttpBackend(base_url, "m", **options)
        await backend.open()
        found: list[Answer | Exception] = []
        for _ in range(attempts):
            try:
                found.append(await backend.complete(request))
            except Exception as error:
                found.append(error)
        await backend.close()
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_chat", [False, True])
def test_answers_have_text_reason_and_tokens(quick_server, stream, is_chat):
    request = Request(messages=CHAT) if is_chat else Request(prompt=CHAT[0]["content"])
    (answer,) = complete(quick_server.base_url, request, stream=stream)
    assert answer.text == "yes \u00e4\u20ac\U0001f600 no"
    assert (answer.finish_reason, answer.input_tokens) == ("stop", 20) and answer.output_tokens > 0
    assert answer.latency_s > 0


@pytest.mark.parametrize("stream", [False, True])
def test_every_planned_fault_may_pass_at_another_attempt(start_server, stream):
    server = start_server("--faults", "1")
    kinds = set()
    for n in range(40):
        request = Request(messages=[{"role": "user", "content": f"number {n}"}])
        first, second = complete(server.base_url, request, attempts=2, stream=stream)
        assert isinstance(first, TryAgain) and isinstance(second, Answer)
        assert first.overloaded == (first.retry_after is not None) == ("429" in str(first))
        kinds.add(str(first)[:20])
    assert len(server.log()["fates"]) == 4 and len(kinds) >= 4


def test_a_refused_request_names_the_reason(quick_server):
    (error,) = complete(quick_server.base_url, Request(prompt="REFUSE me"))
    assert isinstance(error, Refused) and str(error) == "HTTP 400: the prompt is too long"


def test_the_key_is_sent_and_taken_out_of_what_the_server_sends_back(start_server):
    key = "sk-Planted0Key1With2Digits"
    server = start_server("--key", key, "--echo-key", "--faults", "1")
    right = {"headers": {"Authorization": f"Bearer {key}"}}
    errors = []
    for n in range(30):
        errors += complete(server.base_url, Request(prompt=f"{n}"), **right)
    errors += complete(server.base_url, Request(prompt="x"), headers={"Authorization": "Bearer sk-Other0Planted1Key2"})
    errors += complete(server.base_url, Request(prompt="REFUSE"), attempts=2, **right)
    assert isinstance(errors[30], Unusable) and "Incorrect API key provided: ***" in str(errors[30])
    assert any("with key ***" in str(error) for error in errors)
    assert not [error for error in errors if "Planted" in f"{error!r}{error}"]
    assert "Planted" not in repr(HttpBackend(server.base_url, "m", right["headers"]))


def test_no_server_and_a_server_that_does_not_answer():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        (error,) = complete(url, Request(prompt="x"))
        assert isinstance(error, TryAgain) and error.unreachable
        sock.listen()
        (error,) = complete(url, Request(prompt="x"), timeout_s=0.2)
        assert isinstance(error, TryAgain) and error.overloaded and "no answer within 0.2 s" in str(error)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("-1", 0),
        ("99999", 600),
        ("soon", None),
        ("nan", None),
        ("Wed, 21 Oct 2026 07:28:10 GMT", 10),
        (None, None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value, seconds):
    headers = {} if value is None else {"Retry-After": value}
    assert retry_after(headers, now=1792567680.0) == seconds


@pytest.mark.parametrize(
    "url", ["http://user:pass@host/v1", "https://host/v1?api-key=secret1", "ftp://host", "host:80", "http://h/#x"]
)
def test_a_url_with_a_secret_is_refused_and_not_shown(url):
    with pytest.raises(ValueError, match="base_url must") as caught:
        checked_url(url)
    assert "secret1" not in str(caught.value) and "pass@" not in str(caught.value)


def test_a_key_in_the_place_of_its_variable_is_not_shown():
    with pytest.raises(ValueError, match="the name of an environment variable") as caught:
        check_variable("sk-Planted0Key", "api_key_variable")
    assert "Planted" not in str(caught.value)
