"""Remove secrets from URLs and options, so that stored or printed names and messages never contain them.

A URL may contain a secret as ``user:password@`` or as a parameter of its query: a signature, a token, a key.
`public_url` returns the URL without them. It is the name of a file everywhere except where the file is opened: two
signed URLs of one object have the same name, so a run can be resumed with new signatures.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
STORAGE = "storage_options"
ENDPOINT = "endpoint_url"
CLIENT = "client_kwargs"

WEB = frozenset({"http", "https", "webdav", "webdavs", "dav", "davs", "ftp", "ftps"})
"""Protocols whose URLs have queries. On an object storage ``?`` is a character of the name."""

# Patterns are compiled by `re` when they are first used: most runs have no URL.
_NAMES = re.VERBOSE | re.IGNORECASE
_SECRET = r"""
    x-(?:amz|goog)-.+                                                  # all parameters of a signature
    | .*(?:signature|passw(?:or)?d|passphrase|secret|credential).*
    | (?:.*[-_.])?(?:pass|pwd|sig|sign|hmac|jwt|bearer|sas|auth|authorization|authkey|session|sessionid|sid|code)
    | .*token(?:[-_.].*)?
    | (?:.*[-_.]|.*api|.*access|.*private|.*subscription|.*account|.*shared)?key(?:[-_.]?(?:pair[-_.]?)?id)?
    | (?:aws|google|oss)access(?:key)?id
    """
"""Names of parameters that hold a secret."""
_SIGNS = r"(?:.*[-_.])?(?:sig|sign|signature)"
_OF_SIGNATURE = r"""
    (?:.*[-_.])?(?:expires|expiry|exp|date|algorithm|signed-?headers|policy|key-pair-id)
    | q-.+                                                             # Tencent
    | s[vrtpei]|srt|ss|spr|sip|sk[oivtes]|skoid|sktid|saoid|suoid|scid|sdd|ses     # Azure
    """
"""Names of parameters that belong to a signature. They are removed only if there is a signature."""
_RANDOM = r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/=]*(?:[-_.][A-Za-z0-9+/=]*){0,3}"
_LONG = 32
"""A random value of this length may be a secret, whatever the name of its parameter."""

# A protocol has a greatest length: without it the time would grow with the square of a long word without "://".
_URL = r"[A-Za-z][A-Za-z0-9+.\-]{0,30}://[^\s\"'<>`|\\]+"
_ASSIGNED = r"(?<=[?&])([\w.\-]+)=([^&\s\"'<>`#)\]}]+)"


def public_url(url: str) -> str:
    """Return a path or URL without its secrets. A path on this machine stays as it is.

    >>> public_url("https://me:hush@example.org/a.jsonl?page=2&X-Amz-Date=1&X-Amz-Signature=2")
    'https://example.org/a.jsonl?page=2'
    """
    if "://" not in url:
        return url
    while (public := "::".join(map(_without, url.split("::")))) != url:  # the rest may be a chain of other URLs
        url = public
    return url


def public_value(text: str) -> str:
    """Return an argument without the secrets of URLs in it. A text without a URL, such as a local path, stays as it is.

    >>> public_value("/data/a?token=1.jsonl"), public_value("https://example.org/a?token=1")
    ('/data/a?token=1.jsonl', 'https://example.org/a')
    """
    return without_secrets(text) if "://" in text else text


def public_options(options: Mapping[Any, Any]) -> dict[Any, Any]:
    """Options without those of a storage, which hold keys and tokens; the address of the storage stays.

    New credentials do not make another pipeline: a run resumes with them.
    """
    return {key: _place(value) if key == STORAGE else value for key, value in options.items()}


def without_query(url: str) -> str:
    """Return a URL of the web up to its query: its end shows the format of the file. Other paths stay as they are."""
    if url.partition("://")[0].rpartition("::")[2].lower() not in WEB:
        return url
    return re.split("[?#]", url, maxsplit=1)[0]


def without_secrets(text: str) -> str:
    """Return a message with the secrets taken out of all URLs in it.

    >>> without_secrets("403 at https://example.org/a?sig=1, and at https://example.org/b?token=2&page=3")
    '403 at https://example.org/a, and at https://example.org/b?page=3'
    """
    if "://" in text:
        text = re.sub(_URL, lambda found: _in_text(found[0]), text)
    if "=" in text:
        text = re.sub(_ASSIGNED, lambda found: f"{found[1]}={HIDDEN}" if _is_secret(found[1]) else found[0], text)
    return text


def _in_text(url: str) -> str:
    """Return a URL in a sentence without secrets. Punctuation after it is not part of it."""
    bare = url.rstrip(".,;:!?)]}")
    return public_url(bare) + url[len(bare) :]


def _without(url: str) -> str:
    protocol, mark, rest = url.partition("://")
    if not mark:
        return url
    end = re.search(r"[/?#]", rest)
    where = end.start() if end else len(rest)
    user, at, host = rest[:where].rpartition("@")
    if at and (":" in user or protocol.lower() in WEB):
        rest = host + rest[where:]
    if protocol.lower() not in WEB:
        return f"{protocol}://{rest}"
    rest, hash_, fragment = rest.partition("#")
    place, _, query = rest.partition("?")
    query, fragment = _parameters(query), _parameters(fragment) if "=" in fragment else fragment
    return f"{protocol}://{place}{'?' * bool(query)}{query}{hash_ * bool(fragment)}{fragment}"


def _parameters(query: str) -> str:
    from urllib.parse import unquote

    parts = [part for part in re.split("[&;]", query) if part]
    names = [unquote(part.partition("=")[0]) for part in parts]
    signed = any(re.fullmatch(_SIGNS, name, _NAMES) for name in names)
    kept = [
        _shown(part)
        for part, name in zip(parts, names, strict=True)
        if not _is_secret(name) and not (signed and re.fullmatch(_OF_SIGNATURE, name, _NAMES))
    ]
    return "&".join(kept)


def _is_secret(name: str) -> bool:
    return re.fullmatch(_SECRET, name, _NAMES) is not None


def _shown(part: str) -> str:
    """Return a parameter with a hash in place of a value that looks random. The hash still distinguishes two files."""
    from urllib.parse import unquote

    name, mark, value = part.partition("=")
    value = unquote(value if mark else name)
    if len(value) < _LONG or not re.fullmatch(_RANDOM, value):
        return part
    short = "~" + hashlib.sha256(value.encode()).hexdigest()[:12]
    return f"{name}={short}" if mark else short


def _place(options: Any) -> Any:
    if not isinstance(options, Mapping):
        return None
    place = _address(options)
    client = options.get(CLIENT)
    if isinstance(client, Mapping) and ENDPOINT in client:
        place[CLIENT] = _address(client)
    return place


def _address(options: Mapping[Any, Any]) -> dict[Any, Any]:
    if ENDPOINT not in options:
        return {}
    url = options[ENDPOINT]
    return {ENDPOINT: public_url(url) if isinstance(url, str) else url}
