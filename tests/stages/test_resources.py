import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.backends.base import Step
from gristmill.backends.engine.run import step_spec
from gristmill.backends.local.local_config import LocalConfig
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources


def test_defaults_are_one_cpu():
    assert Resources() == Resources(cpus=1.0, gpus=0.0, gpu_memory_gb=0.0, memory_gb=0.0)
    assert not Resources().requires_gpu


@pytest.mark.parametrize("ask", [{"gpus": 1}, {"gpus": 0.25}, {"gpus": 2.0}, {"gpu_memory_gb": 10}])
def test_gpus_are_asked_for_by_count_share_or_memory(ask):
    assert Resources(**ask).requires_gpu


def test_a_stage_that_only_waits_needs_no_cpu():
    assert Resources(cpus=0).cpus == 0


def test_numbers_of_any_kind_are_floats_inside():
    resources = Resources(cpus=2, gpus=np.float32(0.5), memory_gb=np.int64(4))
    assert [type(v) for v in (resources.cpus, resources.gpus, resources.memory_gb)] == [float] * 3
    assert resources == Resources(cpus=2.0, gpus=0.5, memory_gb=4.0)
    assert hash(resources) == hash(Resources(cpus=2.0, gpus=0.5, memory_gb=4.0))


@pytest.mark.parametrize("field", ["cpus", "gpus", "gpu_memory_gb", "memory_gb"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "must not be negative"),
        (math.nan, "must be finite"),
        (math.inf, "must be finite"),
        (True, "must be a number"),
        ("1", "must be a number"),
        (None, "must be a number"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(field, value, words):
    with pytest.raises(ValueError, match=f"{field} {words}"):
        Resources(**{field: value})


def test_gpus_and_gpu_memory_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        Resources(gpus=1, gpu_memory_gb=10)


@given(st.floats(0, 16, exclude_min=True))
def test_a_share_above_one_gpu_is_refused_and_no_other(gpus):
    if gpus <= 1 or gpus == int(gpus):
        assert Resources(gpus=gpus).gpus == gpus
    else:
        with pytest.raises(ValueError, match="fraction above one GPU"):
            Resources(gpus=gpus)


@given(st.integers(1, 10_000))
def test_a_gb_of_a_stage_is_a_gb_of_the_executor(gb):
    stage = processing_stage(resources=Resources(memory_gb=gb))(lambda task: task)
    config = LocalConfig.of({"memory_limit": f"{gb}GB", "object_store_memory": f"{gb} GiB"})
    assert step_spec(Step((stage,)), config).memory == config.memory_limit_bytes == config.budget_bytes


@pytest.mark.parametrize("unit", ["KB", "MB", "GB", "TB"])
def test_units_of_sizes_are_powers_of_1024_with_or_without_the_i(unit):
    plain, binary = (LocalConfig(memory_limit=f"1.5 {u}").memory_limit_bytes for u in (unit, f"{unit[0]}i{unit[1]}"))
    assert plain == binary == 1.5 * 1024 ** ("KMGT".index(unit[0]) + 1)
