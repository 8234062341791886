"""Published sizing tables as a check: where they apply, recommendations must agree with them.

docs/guides/plan.md shows the tables, and explains where recommendations differ.
"""

from __future__ import annotations

import pytest

from gristmill.capacity.advice import bands, cluster_sizes
from gristmill.capacity.jobs import PlannedJob
from gristmill.capacity.predict import predict
from gristmill.dedup import FuzzyDeduplication
from gristmill.pipeline.profiles.measured import MachineKind, PhaseMeasure, RunMeasure, StepMeasure
from gristmill.scheduling.simulator.loads import NodeModel
from gristmill.stages.barrier import InputEstimate

GB = 1 << 30
DOCUMENT_BYTES = 2700
CLIPS = 10
"""Clips of a video."""
VIDEO_GPUS = {1_000: (1, 2), 10_000: (4, 8), 50_000: (16, 32)}
"""Videos: from how many to how many GPUs."""
BANDS = [(50, 32, 5), (100, 64, 5), (300, 128, 2), (500, 128, 2), (1000, 256, 1), (4000, 512, 1)]
"""GB of text, GB of memory of a node, and the fewest bands per iteration of the table for these."""


def video_profile() -> RunMeasure:
    """The rates of the table: 2 clips/s for scenes, 0.5 for captions and 4 for embeddings, each on its own GPU."""
    steps = (
        StepMeasure("scenes", tasks=100, outputs=100 * CLIPS, busy_s=100 * CLIPS / 2, gpus=1, cv=0.3, setup_s=20),
        StepMeasure("captions", tasks=1000, outputs=1000, busy_s=1000 / 0.5, gpus=1, cv=0.3, setup_s=60),
        StepMeasure("embeddings", tasks=1000, outputs=1000, busy_s=1000 / 4, gpus=1, cv=0.3, setup_s=30),
    )
    return RunMeasure("video", (PhaseMeasure(steps, inputs=100),), MachineKind("a CPU", 48.0, ("NVIDIA A100",)))


@pytest.mark.parametrize("videos", VIDEO_GPUS)
def test_the_gpus_of_the_video_table_finish_within_a_day(videos: int) -> None:
    job = PlannedJob(video_profile(), videos, 0, (NodeModel(8, 1),))
    found = cluster_sizes(job, 86_400)[0]
    low, high = VIDEO_GPUS[videos]
    # one GPU alone takes turns between three stages, so the smallest job may be met by the least of the table
    assert low <= found.nodes <= high


def test_captions_are_the_bottleneck_of_the_video_table() -> None:
    found = predict(PlannedJob(video_profile(), 10_000, 0, (NodeModel(48, 8),)))
    assert found.bottleneck.name == "captions"
    assert found.busy["GPU"] > 0.8


@pytest.mark.parametrize(("text_gb", "memory_gb", "least"), BANDS)
def test_at_least_as_many_bands_as_in_the_table_fit_the_memory(text_gb: int, memory_gb: int, least: int) -> None:
    documents = text_gb * GB // DOCUMENT_BYTES
    estimate = InputEstimate(documents, text_gb * GB, 1e-4)
    found = bands(FuzzyDeduplication(), estimate, NodeModel(16, memory_gb=memory_gb))
    assert found is not None
    assert found.bands_per_iteration >= least
    assert found.memory_bytes <= memory_gb * GB


def test_more_documents_or_less_memory_mean_fewer_bands() -> None:
    def at(text_gb: int, memory_gb: int) -> int:
        estimate = InputEstimate(text_gb * GB // DOCUMENT_BYTES, text_gb * GB, 1e-4)
        found = bands(FuzzyDeduplication(), estimate, NodeModel(16, memory_gb=memory_gb))
        assert found is not None
        return found.bands_per_iteration

    by_data = [at(text_gb, 64) for text_gb in (10, 100, 500, 1000, 5000)]
    by_memory = [at(500, memory_gb) for memory_gb in (32, 64, 128, 256, 512)]
    assert by_data == sorted(by_data, reverse=True)
    assert by_memory == sorted(by_memory)
    assert by_data[0] == 20
    assert by_data[-1] == 1


def test_the_formula_of_the_table_is_above_what_is_recommended() -> None:
    """memory = documents * 8 bytes * hashes * bands_per_iteration / num_bands, for hashes of 64 bits held at once."""
    stage = FuzzyDeduplication()
    documents = 100 * GB // DOCUMENT_BYTES
    found = bands(stage, InputEstimate(documents, 100 * GB, 1e-4), NodeModel(16, memory_gb=64))
    assert found is not None
    hashes = stage.num_bands * stage.minhashes_per_band
    formula = documents * 8 * hashes * found.bands_per_iteration / stage.num_bands
    assert found.memory_bytes < formula
