"""The log of done steps of a workflow, in the folder that they write to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from gristmill import fast_json
from gristmill.errors import OutputChanged, not_writable
from gristmill.ledger.commits import RUN, CommitLog
from gristmill.ledger.opening import check_unused
from gristmill.storage import Folder

STEPS = "_gristmill/steps.json"


class StepLog:
    """The done steps in order, each with its result. The folder is locked while this is open.

        with StepLog(folder, own) as log:
            log.check(made_of)
            log.begin()
            if "read" not in log.done:
                log.add("read", {"documents": read()})

    ``own`` returns the names of all files that the steps have written to the folder.
    """

    def __init__(self, folder: Folder, own: Callable[[], Iterable[str]]) -> None:
        self.folder = folder
        self.done: dict[str, Any] = {}
        self.is_resumed = False
        """Whether a run with the same fingerprint was here."""
        self._own = own
        self._log = CommitLog(folder)
        self._made_of: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._log.lock()
        except OSError as error:
            self._log.refuse()
            raise not_writable(self.folder.url, error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, OutputChanged):
            self._log.refuse()
        else:
            self._log.close()

    def check(self, made_of: Mapping[str, Any]) -> None:
        """Read the done steps, and change nothing. Raise `OutputChanged` if another run made them.

        A step whose files are missing or have another size counts as not done, and so do the steps after it.
        """
        self._made_of = made_of
        self.done = {}
        self.is_resumed = self._log.is_of(made_of)
        if not self.is_resumed:
            check_unused(self._log, list(self._own()))
        elif self.folder.exists(STEPS):
            try:
                self.done = dict(self._intact())
            except (AttributeError, KeyError, TypeError, ValueError):
                raise self._log.damaged(STEPS, "it is not what a run wrote") from None

    def _intact(self) -> Iterator[tuple[str, Any]]:
        """Yield the done steps, up to the first whose files are missing or have another size."""
        for name, found in fast_json.loads(self.folder.read(STEPS)).items():
            if any(not sizes.items() <= self.folder.sizes(place).items() for place, sizes in found["files"].items()):
                return
            yield name, found

    def begin(self) -> None:
        """Write the fingerprint, before anything else is written."""
        if not self.is_resumed:
            self.folder.remove(STEPS)
            self._log.write_run(self._made_of)

    def add(self, name: str, found: Mapping[str, Any], *places: str) -> None:
        """Log a done step; ``places`` are the folders in this one that it has filled."""
        own = set(self._own())
        files = {
            place: {file: size for file, size in self.folder.sizes(place).items() if f"{place}/{file}" in own}
            for place in places
        }
        self.done[name] = {**found, "files": files}
        self.folder.write(STEPS, fast_json.dumps(self.done), durable=True)

    def clear(self) -> None:
        """Remove the files of an earlier run, and nothing else."""
        if self.folder.exists(RUN):
            for name in list(self._own()):
                self.folder.remove(name)
            self.folder.remove(STEPS)
            self.folder.remove(RUN)
