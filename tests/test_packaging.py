"""Requirements that keep an installation without the constraints file possible."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extra", ["s3", "dev"])
def test_boto3_is_bound_to_the_version_that_s3fs_can_use(extra):
    requirements = PROJECT["optional-dependencies"][extra]
    assert any(one.startswith("aiobotocore[boto3]>=") for one in requirements), requirements


def test_only_the_extra_for_models_installs_torch():
    for extra, requirements in PROJECT["optional-dependencies"].items():
        assert extra == "models" or not any(one.startswith(("torch", "transformers")) for one in requirements), extra
