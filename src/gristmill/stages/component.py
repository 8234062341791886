"""What stages, filters and modifiers have in common."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar


class Component:
    """A part of a pipeline: a stage, a filter or a modifier. All of this has defaults that are right for most."""

    indifferent: ClassVar[tuple[str, ...]] = ()
    """Arguments that do not change results, only how they are computed. A resumed run may have others."""
    revision: ClassVar[int] = 1
    """Raised when the same arguments give other results than before. A run does not resume that of another revision."""
    loads: ClassVar[tuple[str, ...]] = ()
    """Modules that a built-in stage imports when it runs. Workers import them while the run is still being planned."""
    builtin: ClassVar[bool] = False
    """Whether the class is gristmill's own: the columns that it declares are all that it touches, and its module can be
    imported ahead of the run. Set by `gristmill.stages.registry.builtin`, or by ``class X(..., builtin=True)`` where a
    class has no name in files. Subclasses do not inherit it."""

    def __init_subclass__(cls, *, builtin: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.builtin != builtin:
            cls.builtin = builtin

    def fingerprint_files(self) -> Sequence[str | os.PathLike[str]]:
        """Files and folders that results depend on and that no argument names.

        A run that resumes compares them with those of the run before, as it does with files that arguments name. If
        one has changed, the run stops and names it.

            def fingerprint_files(self):
                return [self.folder / "weights.bin"]
        """
        return ()

    def made_of(self) -> Sequence[object]:
        """The objects that it was given to do its work with, filters for example. They may be the user's."""
        return ()

    def preload(self) -> None:
        """Import and load what all workers can share: models, tables. Called once, in the process that forks workers.

        No threads, no files kept open, no CUDA: those do not survive.
        """
