"""The data files that a stage, filter or modifier reads beside its arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence


class DataFiles:
    """What stages, filters and modifiers have in common: a hook that names the files they read."""

    def fingerprint_files(self) -> Sequence[str | os.PathLike[str]]:
        """Files and folders that results depend on and that no argument names.

        A run that resumes compares them with those of the run before, as it does with files that arguments name. If
        one has changed, the run stops and names it.

            def fingerprint_files(self):
                return [self.folder / "weights.bin"]
        """
        return ()
