"""Messages between processes of one machine: frames of many messages over a socket pair, descriptors beside them.

A message is a tuple of plain values; a frame is a list of messages in `marshal` form, which both ends can use because
they are the same interpreter. A descriptor travels with the frame that announces it, so the order of arrival tells
which is which.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import struct
from collections import deque
from typing import Any

Message = tuple[Any, ...]

_HEADER = struct.Struct("<I")
_CHUNK = 1 << 18
_FDS = 16
_FD_SPACE = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of a socket pair. Blocking or not as the socket is."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fds: deque[int] = deque()
        """Descriptors received and not yet claimed."""
        self._in = bytearray()
        self._out: deque[tuple[bytes | memoryview, list[int]]] = deque()

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, messages: list[Message], fds: list[int] | None = None) -> None:
        """Send now, as far as the socket takes it; the rest waits for `flush`."""
        body = marshal.dumps(messages)
        self._out.append((_HEADER.pack(len(body)) + body, fds or []))
        if len(self._out) == 1:
            self.flush()

    def flush(self) -> bool:
        """Send what waits; True when nothing is left."""
        while self._out:
            data, fds = self._out[0]
            try:
                sent = self._send_some(data, fds)
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._out.clear()
                return True
            if sent == len(data):
                self._out.popleft()
            else:
                self._out[0] = (memoryview(data)[sent:], [])
        return True

    def _send_some(self, data: bytes | memoryview, fds: list[int]) -> int:
        if fds:
            return socket.send_fds(self.sock, [data], fds)
        return self.sock.send(data)

    def receive(self) -> list[Message]:
        """All messages of the complete frames that have arrived; waits for one on a blocking socket."""
        while True:
            try:
                data, ancillary, _, _ = self.sock.recvmsg(_CHUNK, _FD_SPACE)
            except BlockingIOError:
                return []
            except ConnectionResetError:
                data, ancillary = b"", []
            for level, kind, raw in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    self.fds.extend(array.array("i", raw[: len(raw) - len(raw) % 4]))
            if not data:
                raise Closed
            self._in += data
            messages = self._parse()
            if messages or not self.sock.getblocking():
                return messages

    def _parse(self) -> list[Message]:
        messages: list[Message] = []
        start = 0
        buffer = self._in
        while len(buffer) - start >= _HEADER.size:
            (size,) = _HEADER.unpack_from(buffer, start)
            end = start + _HEADER.size + size
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                messages.extend(marshal.loads(view[start + _HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return messages

    def close(self) -> None:
        self.sock.close()
        while self.fds:
            os.close(self.fds.popleft())
