"""Messages between processes of one machine: frames of many messages over a socket pair, descriptors beside them.

A frame is a list of encoded messages (`Codec`) in `marshal` form, which both ends can read because they run the same
interpreter. A descriptor travels with the frame that announces it, so descriptors arrive in the order of the messages.
"""

from __future__ import annotations

import array
import contextlib
import marshal
import os
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from gristmill.backends.engine.protocol import Codec, Plain

Sent = TypeVar("Sent", bound=tuple[Any, ...])
Received = TypeVar("Received", bound=tuple[Any, ...])

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 18
_FDS = 16
_FD_SPACE = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)
_FLAGS = socket.MSG_CMSG_CLOEXEC if sys.platform == "linux" else 0


class _Buffer(threading.local):
    """Where a thread receives; two runs in two threads must not share one."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_CHUNK))


_buffer = _Buffer()


class Closed(Exception):
    """The other end is gone."""


class Channel(Generic[Sent, Received]):
    """One end of a socket pair. Blocking or not as the socket is."""

    def __init__(self, sock: socket.socket, sent: Codec[Sent], received: Codec[Received]) -> None:
        self.sock = sock
        self._sent = sent
        self._received = received
        self.fds: deque[int] = deque()
        """Descriptors received and not yet claimed."""
        self._in = bytearray()
        self._out: deque[tuple[bytes | memoryview, list[int]]] = deque()

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits for `flush`."""
        return bool(self._out)

    def send(self, messages: Sequence[Sent], fds: Sequence[int] = ()) -> None:
        """Send now, as far as the socket takes it; the rest waits for `flush`. The descriptors stay the caller's."""
        body = marshal.dumps(self._sent.encode(messages))
        self._out.append((_HEADER.pack(len(body)) + body, [os.dup(fd) for fd in fds]))
        if len(self._out) == 1:
            self.flush()

    def flush(self) -> bool:
        """Send what waits; True when nothing is left. Messages to an end that is gone are discarded."""
        while self._out:
            data, fds = self._out[0]
            try:
                sent = socket.send_fds(self.sock, [data], fds) if fds else self.sock.send(data)
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._discard()
                return True
            for fd in fds:
                os.close(fd)
            if sent == len(data):
                self._out.popleft()
            else:
                self._out[0] = (memoryview(data)[sent:], [])
        return True

    def receive(self) -> Iterator[Received]:
        """All messages of the complete frames that have arrived; waits for one on a blocking socket."""
        while True:
            try:
                self._read()
            except BlockingIOError:
                return iter(())
            plain = self._parse()
            if plain or not self.sock.getblocking():
                return self._received.decode(plain)

    def drain(self) -> Iterator[Received]:
        """All messages of a process that has ended. For sockets that do not block."""
        with contextlib.suppress(BlockingIOError, Closed):
            while True:
                self._read()
        return self._received.decode(self._parse())

    def _read(self) -> None:
        view = _buffer.view
        try:
            n, ancillary, _, _ = self.sock.recvmsg_into([view], _FD_SPACE, _FLAGS)
        except ConnectionResetError:
            raise Closed from None
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds.extend(array.array("i", raw[: len(raw) - len(raw) % 4]))
        if not n:
            raise Closed
        self._in += view[:n]

    def _parse(self) -> Plain:
        """Take the complete frames."""
        plain: Plain = []
        start = 0
        buffer = self._in
        while len(buffer) - start >= _HEADER.size:
            (size,) = _HEADER.unpack_from(buffer, start)
            end = start + _HEADER.size + size
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                plain.extend(marshal.loads(view[start + _HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return plain

    def _discard(self) -> None:
        while self._out:
            for fd in self._out.popleft()[1]:
                os.close(fd)

    def close(self) -> None:
        self.sock.close()
        self._discard()
        while self.fds:
            os.close(self.fds.popleft())
