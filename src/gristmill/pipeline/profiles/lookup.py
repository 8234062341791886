"""Find the measurements of an earlier run of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.logs import logger
from gristmill.pipeline.planner import flatten
from gristmill.pipeline.profiles.machine import this_machine
from gristmill.pipeline.profiles.recording import key_of
from gristmill.pipeline.profiles.store import ProfileStore, StoreError, store_path

if TYPE_CHECKING:
    from gristmill.pipeline.pipeline import Pipeline
    from gristmill.scheduling.profile import Profile


def stored_profile(pipeline: Pipeline) -> Profile | None:
    """Return what the newest run of this pipeline has measured on this kind of machine; None if there is none.

    Only measurements of the same code, configuration and kind of machine are taken. A store that cannot be read is
    reported, and the run measures its stages as usual.
    """
    path = store_path()
    if path is None:
        logger.info("the profile store is switched off: the run measures its stages as usual")
        return None
    try:
        run = ProfileStore(path).newest(key_of(flatten(pipeline.stages)), this_machine())
    except StoreError as error:
        logger.warning(f"{error}. The run measures its stages as usual")
        return None
    if run is None:
        logger.info(f"the profile store {path} has no run of this pipeline on this kind of machine")
        return None
    return run.profile()
