"""The short import paths: `gristmill`, `gristmill.text`, `gristmill.dedup`, `gristmill.image` and `gristmill.video`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gristmill
from gristmill import dedup, image, text, video
from gristmill.stages.registry import INTERNAL, known


def test_short_paths_name_every_class_that_a_pipeline_file_can_name():
    names = {name for name, cls in known().items() if name not in INTERNAL and cls.__module__.startswith("gristmill.")}
    assert names <= {*text.__all__, *dedup.__all__, *image.__all__, *video.__all__}


def test_short_paths_name_the_same_objects_as_the_long_ones():
    from gristmill.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
    from gristmill.stages.text.filters import ScoreFilter
    from gristmill.stages.text.io import JsonlReader
    from gristmill.stages.text.recipes import recipe

    assert (text.JsonlReader, text.ScoreFilter, text.recipe) == (JsonlReader, ScoreFilter, recipe)
    assert dedup.ExactDeduplicationWorkflow is ExactDeduplicationWorkflow
    for name, cls in known().items():
        for module in (text, dedup, image):
            assert getattr(module, name, cls) is cls


@pytest.mark.parametrize("module", [gristmill, text, dedup, image])
def test_every_listed_name_resolves(module):
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert len(module.__all__) == len(set(module.__all__))


@pytest.mark.parametrize(
    "statement", ["import gristmill", "from gristmill.text import JsonlReader, ScoreFilter", "import gristmill.image"]
)
def test_imports_stay_light(statement):
    code = (
        f"import sys; {statement}; print(*{{'numba', 'numpy', 'pandas', 'pyarrow', 'ray', 'torch'}} & {{*sys.modules}})"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == []
