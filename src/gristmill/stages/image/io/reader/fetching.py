"""The bytes of single files: from elsewhere a few at the same time, and none larger than allowed."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gristmill.stages.image.io.reader.options import MOST_BYTES
from gristmill.stages.text.io.reader.files import open_regular
from gristmill.storage import http_status, local_path, storage_of

AT_ONCE = 16
"""Files that a worker fetches at the same time."""
SMALL_BYTES = 4 << 20
"""A larger file is fetched alone, so that few large ones are in memory."""
ATTEMPTS = 3
FIRST_WAIT_S = 0.5
TIMEOUT_S = 30
"""How long a web server may take to connect, or to send more."""
TOTAL_TIMEOUT_S = 300
_PIECE = 1 << 20
_AGAIN = (408, 425, 429)
"""Answers of web servers to which it is worth asking again, beside those from 500 on."""


class Unread(Exception):
    """A file that cannot be read. Its text is the reason in quarantine."""

    def __init__(self, reason: str, may_pass: bool = False, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.is_missing = is_missing
        self.may_pass = may_pass
        """Whether another attempt may succeed."""


@dataclass(frozen=True)
class TooLarge:
    """A file that is larger than was allowed."""


def fetched(
    locations: Sequence[str], options: Mapping[str, Any], most: int = MOST_BYTES
) -> Iterator[bytes | Unread | TooLarge]:
    """Yield the content of each file, in order, or why it cannot be read.

    Files elsewhere are fetched ahead, `AT_ONCE` of them and each only up to `SMALL_BYTES`. So no more than
    ``AT_ONCE * SMALL_BYTES`` and one file of ``most`` bytes are in memory.
    """
    if all(local_path(location) is not None for location in locations):
        for location in locations:
            yield _tried(location, options, most)
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gristmill-fetch") as pool:
        ahead: deque[Future[bytes | Unread | TooLarge]] = deque()
        left = iter(locations)
        for location in locations:
            while len(ahead) < AT_ONCE and (coming := next(left, None)) is not None:
                ahead.append(pool.submit(_tried, coming, options, min(SMALL_BYTES, most)))
            found = ahead.popleft().result()
            if isinstance(found, TooLarge) and most > SMALL_BYTES:
                found = _tried(location, options, most)
            yield found


def _tried(location: str, options: Mapping[str, Any], most: int) -> bytes | Unread | TooLarge:
    """The content of a file. What may pass is tried again."""
    wait = FIRST_WAIT_S
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _read(location, options, most)
        except Unread as error:
            if not error.may_pass or attempt == ATTEMPTS:
                return error
        time.sleep(wait)
        wait *= 4
    raise AssertionError("the last attempt returns")


def _read(location: str, options: Mapping[str, Any], most: int) -> bytes | TooLarge:
    try:
        local = local_path(location)
        return _read_local(local, most) if local is not None else _read_remote(location, options, most)
    except Exception as error:  # each storage has exceptions of its own
        raise unread(error) from None


def _read_local(path: str, most: int) -> bytes | TooLarge:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            return TooLarge()
        data = file.read(size + 1)
        return data or b""


def _read_remote(location: str, options: Mapping[str, Any], most: int) -> bytes | TooLarge:
    storage, path = storage_of(location, options)
    if not location.startswith(("http://", "https://")):
        return _read_object(storage, path, most)
    from aiohttp import ClientTimeout

    # a stream: an answer may have no end, and a server need not send parts
    timeout = ClientTimeout(total=TOTAL_TIMEOUT_S, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S)
    data = bytearray()
    with storage.open(path, "rb", block_size=0, size=1, timeout=timeout) as answer:
        while piece := answer.read(min(_PIECE, most + 1 - len(data))):
            data += piece
            if len(data) > most:
                return TooLarge()
    return bytes(data)


def _read_object(storage: Any, path: str, most: int) -> bytes | TooLarge:
    """An object in one request."""
    try:
        data: bytes = storage.cat_file(path, start=0, end=most + 1)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception:  # each storage has exceptions of its own
        if storage.info(path)["size"] != 0:  # of an empty object there is no range
            raise
        return b""
    return data if len(data) <= most else TooLarge()


_REASONS = (
    (FileNotFoundError, "the file does not exist (ENOENT)"),
    (NotADirectoryError, "the file does not exist (ENOTDIR)"),
    (PermissionError, "access is denied (EACCES)"),
    (IsADirectoryError, "a folder, not a file (EISDIR)"),
)


def unread(error: Exception) -> Unread:
    """The reason of an error, without names: of a thousand errors of a kind it is the same."""
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return Unread(reason, is_missing=kind is FileNotFoundError)
    status = http_status(error)
    if status is not None:
        may_pass = status >= 500 or status in _AGAIN
        return Unread("the server failed" if status >= 500 else f"the server refused with {status}", may_pass)
    if isinstance(error, TimeoutError):
        return Unread("no answer in time (ETIMEDOUT)", may_pass=True)
    if isinstance(error, ConnectionError) or type(error).__module__.partition(".")[0] == "aiohttp":
        return Unread("the connection failed", may_pass=True)
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        is_odd = error.errno in (errno.EINVAL, errno.ENXIO, errno.ENAMETOOLONG, errno.ELOOP)
        return Unread("not a regular file" if error.errno == errno.EINVAL else f"cannot be read ({name})", not is_odd)
    return Unread(f"cannot be read ({type(error).__name__})")
