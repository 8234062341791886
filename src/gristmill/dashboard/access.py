"""Who may read the page: on loopback all users of this machine, and elsewhere those with the token. Pure."""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass
from enum import Enum
from http.cookies import CookieError, SimpleCookie

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Verdict(Enum):
    ALLOWED = "allowed"
    SET_COOKIE = "allowed by the token in the URL, which a cookie replaces"
    NO_TOKEN = "no token, or a wrong one"
    WRONG_HOST = "the name in the URL is not this machine's"


@dataclass(frozen=True, slots=True)
class Access:
    """The rule for one server.

    On loopback, the name in the URL must be one of loopback: another name that leads here is that of a web site which
    wants to read the page in a browser of this machine (DNS rebinding). Beyond loopback a token is asked for.
    """

    token: str | None
    """None on loopback."""
    port: int
    host: str = "127.0.0.1"
    """The name or address that was asked for."""

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies are shared by all ports of a host, so the port is in the name."""
        return f"gristmill-{self.port}"

    def verdict(self, target: str, host: str, cookie: str = "", authorization: str = "") -> Verdict:
        """Decide about a request for a target such as ``/state.json?token=...``, from three of its headers."""
        if self.token is None:
            name = host_name(host)
            return Verdict.ALLOWED if name in LOOPBACK_NAMES or name == self.host.lower() else Verdict.WRONG_HOST
        if self._is_token(_cookie(cookie, self.cookie)):
            return Verdict.ALLOWED
        kind, _, given = authorization.partition(" ")
        if kind.lower() == "bearer" and self._is_token(given.strip()):
            return Verdict.ALLOWED
        in_url = "&".join(re.findall(r"[?&]token=([^&]*)", target))
        return Verdict.SET_COOKIE if self._is_token(in_url) else Verdict.NO_TOKEN

    def _is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def host_name(header: str) -> str:
    """Return the host of a Host header, without the port.

    >>> host_name("[::1]:8080"), host_name("LOCALHOST:1"), host_name("evil.example")
    ('::1', 'localhost', 'evil.example')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def is_loopback(address: str) -> bool:
    """Whether a numeric address is reached from this machine only."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
