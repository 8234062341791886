"""Secrets in URLs: which parts of a URL are secret, and that a name stays the same when they change."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import PlanError
from gristmill.secrets import public_url, without_secrets

AMAZON = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=HUSH%2F2026&X-Amz-Date=HUSH&X-Amz-Expires=60&"
AMAZON += "X-Amz-Security-Token=HUSH&X-Amz-SignedHeaders=host&X-Amz-Signature=HUSH"
AZURE = "sv=2022-11-02&ss=b&srt=o&sp=r&st=HUSH&se=HUSH&spr=https&skoid=HUSH&sktid=HUSH&sig=HUSH%3D"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://bucket.example.org/a.jsonl.gz?{AMAZON}", "https://bucket.example.org/a.jsonl.gz"),
        (f"https://a.blob.example.org/c/a.jsonl?{AZURE}", "https://a.blob.example.org/c/a.jsonl"),
        ("https://h/a?GoogleAccessId=HUSH&Expires=HUSH&Signature=HUSH", "https://h/a"),
        ("https://h/a?Expires=HUSH&Signature=HUSH&Key-Pair-Id=HUSH&Policy=HUSH", "https://h/a"),
        ("https://h/a?AWSAccessKeyId=HUSH&Signature=HUSH&Expires=HUSH&versionId=7", "https://h/a?versionId=7"),
        ("https://h/a?page=2&access_token=HUSH", "https://h/a?page=2"),
        ("https://h/a?api_key=HUSH&apikey=HUSH&key=HUSH&x-api-key=HUSH", "https://h/a"),
        ("https://h/a?auth=HUSH&password=HUSH&client_secret=HUSH&jwt=HUSH", "https://h/a"),
        ("https://h/a#access_token=HUSH", "https://h/a"),
        ("https://me:HUSH@h:8080/a", "https://h:8080/a"),
        ("https://me:HU@SH@h/a", "https://h/a"),
        ("https://HUSH@h/a", "https://h/a"),
        ("ftp://me:HUSH@h/a", "ftp://h/a"),
        ("sftp://me:HUSH@h/a", "sftp://h/a"),
        ("simplecache::https://me:HUSH@h/a?sig=HUSH", "simplecache::https://h/a"),
    ],
)
def test_secrets_are_taken_out_of_a_url(url, shown):
    assert public_url(url) == shown
    assert "HUSH" not in without_secrets(f"cannot read {url}: 403, url='{url}' ({url}).")


@pytest.mark.parametrize(
    "url",
    [
        *("/data/a?token=1.jsonl", "a::b", "data/a.jsonl", "s3://bucket/a?token=1.jsonl", "sftp://me@h/a"),
        *("https://h/a.jsonl", "https://h/a?page=2&date=2026-01-01&sp=3", "https://h/a?author=x&tokenizer=y&monkey=z"),
        *("https://h/a#part", "memory://a", "gs://bucket/a#b=c", "https://h/a%20b?q=c%20d"),
    ],
)
def test_a_url_without_secrets_stays_as_it_is(url):
    assert public_url(url) == url


def test_a_value_that_looks_random_is_hidden_and_still_tells_files_apart():
    one, other = (public_url(f"https://h/a?x={c * 8}4f9A{c * 30}") for c in "ab")
    assert one != other and re.fullmatch(r"https://h/a\?x=~[0-9a-f]{12}", one)
    assert public_url("https://h/a?x=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.abc").startswith("https://h/a?x=~")


def test_parameters_without_a_protocol_are_hidden_in_messages():
    shown = without_secrets("GET /a.jsonl?X-Amz-Signature=HUSH&page=2 HTTP/1.1")
    assert shown == "GET /a.jsonl?X-Amz-Signature=***&page=2 HTTP/1.1"


def test_messages_of_errors_hold_no_secrets():
    assert str(PlanError("https://me:HUSH@h/a?sig=HUSH cannot be read")) == "https://h/a cannot be read"


@pytest.mark.parametrize("chain", ["https://h/a::https://me:HUSH@h/b?sig=HUSH", "zip://a::https://me:HUSH@h/b?x=1;::"])
def test_no_url_of_a_chain_keeps_its_secrets(chain):
    assert "HUSH" not in public_url(chain) and public_url(public_url(chain)) == public_url(chain)


@given(st.text())
def test_a_message_without_urls_stays_as_it_is(text):
    if "://" not in text and not re.search("[?&].*=", text, re.DOTALL):
        assert without_secrets(text) == text


PIECES = ["a", "b", *":/@?&=#.%;~ '\"\n", "::", "://", "https://", "sig="]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_a_url_or_none_and_never_an_error(text):
    for url in (text, f"https://{text}", f"https://h/?{text}", f"s3://{text}"):
        assert public_url(public_url(url)) == public_url(url)
        without_secrets(url)


@pytest.mark.parametrize("word", ["x", "a1-", "ab+", "key", "&a=b", "?a", "://", "s3://a::"])
def test_the_time_for_a_long_message_grows_with_its_length_only(word):
    """Messages hold whole documents at times. With the square of the length this would take an hour."""
    call = (
        "from gristmill.secrets import without_secrets\n"
        f"text = without_secrets({word!r} * (2 << 20) + ' https://u:p@host/b?page=1&sig=2')\n"
        "assert text.endswith(' https://host/b?page=1')"
    )
    subprocess.run([sys.executable, "-c", call], check=True, timeout=600)
