"""Find the files that a path on this machine names. Only regular files are read; nothing is opened here."""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from gristmill.errors import PlanError
from gristmill.stages.text.io.listing import ASIDE, File, Listing, check_name, fixed_part, relative_name
from gristmill.stages.text.io.stamps import of_stat

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def add_local(listing: Listing, given: str, path: str) -> None:
    """Add the files that ``path`` names to a listing; ``given`` is how the user wrote it."""
    if any(sign in path for sign in "*?[") and not os.path.lexists(path):
        _add_pattern(listing, given, path)
        return
    try:
        found = os.stat(path)
    except PermissionError:
        raise PlanError(f"{given!r} may not be read: permission denied.") from None
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise PlanError(f"{given!r} is a link to {os.readlink(path)!r}, which does not exist.") from None
        raise PlanError(f"{given!r} does not exist: there is no file and no folder of this name.") from None
    except OSError as error:
        raise PlanError(f"{given!r} cannot be read: {error.strerror}.") from None
    if stat.S_ISDIR(found.st_mode):
        before = listing.added
        _add_folder(listing, path, path)
        if listing.added == before:
            raise PlanError(listing.nothing_in(given))
        return
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise PlanError(f"{given!r} is {kind}: only regular files can be read. Write the data to a file first.")
    if not os.access(path, os.R_OK):
        raise PlanError(f"{given!r} may not be read: permission denied.")
    _add(listing, path, found, posixpath.basename(path))


def _add_pattern(listing: Listing, given: str, pattern: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    hidden = posixpath.basename(pattern).startswith(("_", "."))
    root, before = fixed_part(pattern), listing.added
    for path in LocalFileSystem().glob(pattern):
        if os.path.isdir(path):
            _add_folder(listing, path, root)
        elif hidden or not posixpath.basename(path).startswith(("_", ".")):
            _add_entry(listing, path, root)
    if listing.added == before:
        raise PlanError(f"the pattern {given!r} matches no file.")


def _add_folder(listing: Listing, top: str, root: str) -> None:
    """Add the files below a folder that end in what is wanted."""
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
        except FileNotFoundError:  # it was removed since its parent was listed
            continue
        except OSError as error:
            raise PlanError(f"the folder {folder!r} cannot be listed: {error.strerror}.") from None
        is_output = any(entry.name == "_gristmill" for entry in entries)
        for entry in entries:
            if entry.name.startswith("_"):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not (is_output and ASIDE.fullmatch(entry.name)):
                    folders.append(entry.path)
            elif listing.is_wanted(entry.name):
                _add_entry(listing, entry.path, root)
            elif entry.is_symlink() and entry.is_dir():
                listing.folder_links.add(entry.path)
            else:
                listing.note_other(entry.path)


def _add_entry(listing: Listing, path: str, root: str) -> None:
    """Add a file that was found, or count what cannot be read."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise PlanError(f"{path!r} cannot be read: {error.strerror}.") from None
        if os.path.islink(path):
            listing.dangling.add(path)
        return  # else it was removed since the folder was listed
    if stat.S_ISREG(found.st_mode):
        _add(listing, path, found, relative_name(path, root))
    elif stat.S_ISDIR(found.st_mode):
        listing.folder_links.add(path)
    else:
        listing.odd.add(path)


def _add(listing: Listing, path: str, found: os.stat_result, name: str) -> None:
    check_name(path)
    listing.add(File(path, found.st_size, str(found.st_mtime_ns), name, of_stat(found)))
