"""Who may read the page."""

import doctest

import pytest

from gristmill.dashboard import access, words
from gristmill.dashboard.access import Access, Verdict, is_loopback

LOCAL = Access(None, 8080)
REMOTE = Access("secret-token", 8080, "0.0.0.0")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "localhost:9999"])
def test_on_loopback_the_names_of_this_machine_are_answered(host):
    assert LOCAL.verdict("/", host) is Verdict.ALLOWED


@pytest.mark.parametrize("host", ["", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]"])
def test_on_loopback_a_name_that_was_rebound_to_it_is_refused(host):
    assert LOCAL.verdict("/?token=anything", host) is Verdict.WRONG_HOST


def test_beyond_loopback_the_token_comes_once_in_the_url_and_then_in_a_cookie_or_a_header():
    assert REMOTE.verdict("/?token=secret-token", "node7:8080") is Verdict.SET_COOKIE
    assert REMOTE.verdict("/events", "node7:8080", f"a=b; {REMOTE.cookie}=secret-token") is Verdict.ALLOWED
    assert REMOTE.verdict("/state.json", "node7:8080", authorization="Bearer secret-token") is Verdict.ALLOWED


@pytest.mark.parametrize(
    "target, cookie, authorization",
    [
        ("/", "", ""),
        ("/?token=", "", ""),
        ("/?token=secret-toke", "", ""),
        ("/?token=secret-token&token=x", "", ""),
        ("/?token=%F0%9F%92%A5", "", ""),
        ("/", "gristmill-8081=secret-token", ""),
        ("/", "gristmill-8080=\udcff", ""),
        ("/", "gristmill-8080=wrong; ;;=", ""),
        ("/", "", "Bearer wrong"),
        ("/", "", "Basic secret-token"),
        ("/token=secret-token", "", ""),
    ],
)
def test_beyond_loopback_nothing_is_answered_without_the_token(target, cookie, authorization):
    assert REMOTE.verdict(target, "localhost:8080", cookie, authorization) is Verdict.NO_TOKEN


@pytest.mark.parametrize("address, expected", [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True)])
def test_loopback_addresses(address, expected):
    assert is_loopback(address) is expected
    assert not is_loopback("0.0.0.0") and not is_loopback("::") and not is_loopback("192.168.1.7")


@pytest.mark.parametrize("module", [access, words])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_control_and_bidi_characters_become_escapes_and_the_rest_stays():
    assert words.visible("a\u202eb\u2066c\x00\x1b[31m\ud800") == r"a\u202eb\u2066c\x00\x1b[31m\ud800"
    assert words.visible("über\u00a0日本語 🙂\n\tx") == "über\u00a0日本語 🙂\n\tx"
    assert len(words.visible("x" * 10_000_000)) < 400


def test_secrets_do_not_reach_the_page():
    assert "hush" not in words.public("cannot read https://me:hush@example.org/a?X-Amz-Signature=abc")
