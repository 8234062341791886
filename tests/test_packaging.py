"""Requirements that keep an installation without the constraints file possible."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extra", ["s3", "dev"])
def test_boto3_is_bound_to_the_version_that_s3fs_can_use(extra):
    requirements = PROJECT["optional-dependencies"][extra]
    assert any(one.startswith("aiobotocore[boto3]>=") for one in requirements), requirements


def test_only_the_extra_for_models_and_the_tests_install_torch():
    for extra, requirements in PROJECT["optional-dependencies"].items():
        assert extra in ("models", "dev") or not any(
            one.startswith(("torch", "transformers")) for one in requirements
        ), extra


def test_no_large_file_is_tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert {name: size for name, size in sizes.items() if size > 500_000} == {}
    assert sum(sizes.values()) < 20_000_000
