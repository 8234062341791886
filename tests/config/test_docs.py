"""The examples of the pages are pipelines that can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gristmill import Pipeline

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["pipelines.md", "recipes.md", "cluster.md"])
def test_the_yaml_of_a_page_is_a_pipeline_and_round_trips(page):
    fences = r'^```yaml(?! title="wrong.yaml")[^\n]*\n(.*?)^```'
    examples = re.findall(fences, (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for text in examples:
        pipeline = Pipeline.from_yaml(re.sub(r"^imports:.*\n", "", text, flags=re.MULTILINE))
        assert len(pipeline.stages) >= 4
        assert Pipeline.from_yaml(pipeline.to_yaml()).to_yaml() == pipeline.to_yaml()
