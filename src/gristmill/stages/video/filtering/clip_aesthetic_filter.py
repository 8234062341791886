"""Drop clips by the aesthetic score of their frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from gristmill.lazy import Array, np
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.image.embedders.rows_stage import BATCH
from gristmill.stages.image.filters.aesthetic import PUBLISHED, HeadStage
from gristmill.stages.image.filters.scored import ScoreAtLeast
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.filters.columns import column_of
from gristmill.stages.video.embedding.images import MOST_FRAMES, ClipEmbeddingModelStage, ClipInputStage
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import VideoTask

FRAME_EMBEDDINGS = "_gristmill_frame_embeddings"
"""The column of the embeddings of a clip's frames, between the stages of the filter."""
CLIP_MODEL = "openai/clip-vit-large-patch14"
Reduction = Literal["mean", "min"]


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ClipAestheticScoreStage(HeadStage):
    """Scores clips by the embeddings of their frames. `ClipAestheticFilterStage` explains the arguments."""

    indifferent = ("cache_dir",)

    head_model: str = PUBLISHED
    score_threshold: float = 0.5
    reduction: Reduction = "min"
    embedding_model: str | None = None
    embedding_field: str = FRAME_EMBEDDINGS
    score_field: str | None = "aesthetic_score"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        self.rule: Any = ScoreAtLeast("aesthetic", self.score_threshold)
        self.load_head(self.head_model, self.cache_dir)

    def removes(self) -> list[str]:
        return [self.embedding_field]

    def scores(self, task: DocumentBatch) -> tuple[DocumentBatch, Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from gristmill.tasks.arrow import numbers_of, one_array

        lists: Any = one_array(column_of(task, self.embedding_field))
        counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        task.data = task.data.drop_columns([self.embedding_field])
        scores = np.full(len(counts), np.nan, dtype=np.float32)
        if not len(counts):
            return task, scores
        frames = lists.flatten()
        assert pa.types.is_fixed_size_list(frames.type)
        each = self.scores_of(numbers_of(frames.flatten()).reshape(len(frames), -1))
        starts = np.concatenate([[0], np.cumsum(counts)])
        for row in range(len(counts)):
            some = each[starts[row] : starts[row + 1]]
            scores[row] = some.min() if self.reduction == "min" else some.astype(np.float64).mean()
        return task, scores


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ClipAestheticFilterStage(CompositeStage[VideoTask, VideoTask]):
    """Keeps clips whose aesthetic score is at least ``score_threshold``: that of their frames, by a head on CLIP.

        ClipAestheticFilterStage(score_threshold=4.5, reduction="mean")

    - ``embedding_model``: the image model: a folder, ``package:module/folder``, or a repository on the Hugging Face
      hub. The default is CLIP ViT-L/14.
    - ``model``: the weights of the head, as `ImageAestheticFilterStage` takes them. ``model_dir`` is another name for
      it.
    - ``score_threshold``: scores are about 0 to 10. The default is that of NeMo Curator.
    - ``reduction``: "min", the score of a clip is that of its worst frame, or "mean".
    - ``target_fps``, ``max_frames``: which frames are scored, as in `ClipEmbeddingStage`.
    - ``score_field``: the column for the scores; None stores none.
    - ``num_gpus_per_worker``, ``model_inference_batch_size``, ``torch_compile``, ``cache_dir``, ``hf_token``: those of
      `ImageEmbeddingStage`.
    - ``verbose``: accepted for pipelines of NeMo Curator.

    A clip that cannot be read becomes a bad record.
    """

    indifferent = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("num_gpus_per_worker", "torch_compile", "verbose"),
    )
    loads = ("av", "torch")

    model: str | None = None
    model_dir: str | None = None
    embedding_model: str = CLIP_MODEL
    score_threshold: float = 0.5
    reduction: Reduction = "min"
    target_fps: float = 1.0
    max_frames: int = MOST_FRAMES
    score_field: str | None = "aesthetic_score"
    num_gpus_per_worker: float = 0.25
    model_inference_batch_size: int = BATCH
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.model is not None and self.model_dir is not None:
            raise ValueError("ClipAestheticFilterStage: model and model_dir are the same argument: give one of them.")
        if self.reduction not in get_args(Reduction):
            raise ValueError(f"ClipAestheticFilterStage: reduction must be 'mean' or 'min', not {self.reduction!r}.")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        common: dict[str, Any] = {"model": self.embedding_model, "cache_dir": self.cache_dir, "hf_token": self.hf_token}
        frames = ClipInputStage(**common, target_fps=self.target_fps, max_frames=self.max_frames)
        model = ClipEmbeddingModelStage(
            **common,
            embedding_field=FRAME_EMBEDDINGS,
            reduction="each",
            num_gpus_per_worker=self.num_gpus_per_worker,
            model_inference_batch_size=self.model_inference_batch_size,
            torch_compile=self.torch_compile,
        )
        # a published head tells the kind of model that it reads; other weights belong to the given model
        own = self.model or self.model_dir
        score = ClipAestheticScoreStage(
            head_model=own or PUBLISHED,
            score_threshold=self.score_threshold,
            reduction=self.reduction,
            embedding_model=self.embedding_model if own else None,
            score_field=self.score_field,
            cache_dir=self.cache_dir,
        )
        frames.name, model.name, score.name = f"{self.name} frames", f"{self.name} model", f"{self.name} score"
        return [frames, model, score]
