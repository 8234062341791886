"""Open videos by path, URL or bytes, so that only the parts that are needed are read."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.storage import http_status, local_path, storage_of
from gristmill.videos.errors import BadVideo

if TYPE_CHECKING:
    from av.container import InputContainer

Location: TypeAlias = "str | bytes | memoryview"
"""A path, a URL, or the bytes of an encoded clip."""

MAX_PIXELS = 36 << 20
"""Frames with more pixels than 37.7 million are refused: 8K has 35 million. A decoder keeps up to 17 frames."""
LOCAL_BUFFER_BYTES = 256 << 10
REMOTE_BLOCK_BYTES = 1 << 20
REMOTE_BLOCKS = 16
"""The parts of a remote file that are kept in memory: its index is often at its end."""
FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,live_flv,ogg,asf,gif,apng,nut,mxf,ivf,"
    "h264,hevc,m4v,dv,rm,swf,wtv,yuv4mpegpipe,obu,av1,vc1,gxf,amv,mp3,aac,flac,wav,ac3"
)
"""The formats that are read, as FFmpeg names them. Playlists and lists of files are refused: they open other files."""


@contextmanager
def open_video(
    location: Location,
    options: Mapping[str, Any] | None = None,
    *,
    size: int | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[InputContainer]:
    """Open a video to read it. ``options`` are those of the storage (fsspec) of a URL.

    Raise `BadVideo` for one that cannot be opened, and for one whose ``size`` in bytes is not the given one any more.
    What FFmpeg raises inside the block becomes a `BadVideo` too.
    """
    import av
    import av.error

    with ExitStack() as stack:
        file = stack.enter_context(opened_bytes(location, options))
        if size is not None and size_of(file) != size:
            raise BadVideo("the file changed while it was used")
        whitelist = {"format_whitelist": FORMATS, "protocol_whitelist": "none"}
        buffer = LOCAL_BUFFER_BYTES if isinstance(file, io.RawIOBase | io.BytesIO) else REMOTE_BLOCK_BYTES
        limits = {"max_pixels": str(max_pixels), "threads": "1"}  # of the decoders that look at the first packets
        with as_bad_video(location):
            try:
                opened = av.open(
                    file,
                    "r",
                    options=limits,
                    container_options=whitelist,
                    buffer_size=buffer,
                    metadata_errors="replace",
                )
            except av.error.ArgumentError:  # a format that is not read
                raise BadVideo("not a video of a known format") from None
            yield stack.enter_context(opened)


@contextmanager
def opened_bytes(location: Location, options: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Open the bytes of a video as a file object that can seek."""
    if not isinstance(location, str):
        with io.BytesIO(location) as memory:
            yield memory
        return
    with as_bad_video(location):
        local = local_path(location)
        file = _open_local(local) if local is not None else _open_remote(location, options or {})
    with file:
        yield file


def size_of(file: Any) -> int:
    """The size in bytes of an open file."""
    here = file.tell()
    size = int(file.seek(0, os.SEEK_END))
    file.seek(here)
    return size


def _open_local(path: str) -> io.FileIO:
    """Open a regular file of this machine. A FIFO is not waited for."""
    file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115  # the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _open_remote(url: str, options: Mapping[str, Any]) -> Any:
    storage, path = storage_of(url, options)
    cache = {"cache_type": "blockcache", "cache_options": {"maxblocks": REMOTE_BLOCKS}}
    file = storage.open(path, "rb", block_size=REMOTE_BLOCK_BYTES, **cache)
    if not file.seekable():
        file.close()
        raise BadVideo("the server does not send parts of files")
    return file


def _of_server(error: BaseException) -> BadVideo | None:
    """The reason of an error of a web server. None if there is no such file."""
    status = http_status(error)
    if status is None:
        return BadVideo("the connection failed", may_pass=True)
    if status in _GONE:
        return None
    may_pass = status >= 500 or status in _AGAIN
    return BadVideo("the server failed" if status >= 500 else f"the server refused with {status}", may_pass)


_GONE = (404, 410)
_AGAIN = (408, 425, 429)
"""Answers of web servers to which it is worth asking again, beside those from 500 on."""
_REASONS = (
    (FileNotFoundError, "the file does not exist (ENOENT)"),
    (NotADirectoryError, "the file does not exist (ENOTDIR)"),
    (PermissionError, "access is denied (EACCES)"),
    (IsADirectoryError, "a folder, not a file (EISDIR)"),
)


@contextmanager
def as_bad_video(location: Location) -> Iterator[None]:
    """Raise whatever FFmpeg and storages raise as `BadVideo`, with a reason that is the same for all videos."""
    try:
        yield
    except (BadVideo, AssertionError):
        raise
    except Exception as error:  # each storage has exceptions of its own
        if isinstance(error, MemoryError) and not type(error).__module__.startswith("av."):
            raise  # FFmpeg's is mostly that of a damaged file, which asks for gigabytes
        is_plain = isinstance(error, ValueError) and not type(error).__module__.startswith("av.")
        if is_plain and isinstance(location, str) and location.startswith(("http://", "https://")):
            raise BadVideo("the server does not send parts of files") from None
        raise reason_of(error) from None


def reason_of(error: Exception) -> BadVideo:
    """The reason of an error, without names and numbers."""
    import av.error

    if isinstance(error, av.error.FFmpegError):
        if isinstance(error, av.error.InvalidDataError | av.error.EOFError):
            return BadVideo("damaged")
        if isinstance(error, av.error.DecoderNotFoundError):
            return BadVideo("a codec that cannot be decoded")
        if isinstance(error, MemoryError):
            return BadVideo("asks for too much memory")
        if isinstance(error, av.error.ArgumentError | av.error.PatchWelcomeError | av.error.NotImplementedError):
            return BadVideo("a feature that cannot be decoded")
    cause = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ else error
    if type(cause).__module__.partition(".")[0] == "aiohttp" and (answered := _of_server(cause)) is not None:
        return answered
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return BadVideo(reason)
    if isinstance(error, TimeoutError):
        return BadVideo("no answer in time (ETIMEDOUT)", may_pass=True)
    if isinstance(error, ConnectionError):
        return BadVideo("the connection failed", may_pass=True)
    if isinstance(error, OSError) and error.errno == errno.EINVAL:
        return BadVideo("not a regular file")
    if isinstance(error, OSError):
        return BadVideo(f"cannot be read ({errno.errorcode.get(error.errno or 0, type(error).__name__)})")
    return BadVideo(f"cannot be read ({type(error).__name__})")
