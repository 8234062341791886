"""Drop images that their captions do not fit, by ConSE: a classifier of images and a model of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.images.decode import MAX_PIXELS
from gristmill.models.vision import lite0
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.image.embedders.captions import CAPTION_EMBEDDING
from gristmill.stages.image.embedders.conse import CLASS_NAMES, CONSE_EMBEDDING, ConseModelStage
from gristmill.stages.image.embedders.input import ImageInputStage
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS
from gristmill.stages.image.filters.similarity import SimilarityStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.embedders.base import DEFAULT_MODEL, EmbeddingCreatorStage
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import CAPTION, IMAGE


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ConSESimilarityFilterStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Keeps images whose caption fits by ConSE: the score is at least ``score_threshold``.

        ConSESimilarityFilterStage(score_threshold=0.2)

    ConSE (Norouzi and others, 2013) needs no model of images and texts. EfficientNet-Lite0 gives the probabilities of
    ImageNet's 1,000 classes, a text model the embeddings of their names. An image is the mean of the names of its ten
    most probable classes, weighted by probability, and the score is its cosine with the embedding of the caption.
    What is not among the classes, people for one, is not recognized: use CLIP or SigLIP where you have a checkpoint
    (`ImageTextSimilarityFilterStage`).

    - ``text_model``: an embedding model, as in `EmbeddingCreatorStage`.
    - ``class_names``: a folder like that of the package timm, or a file with a name in each line.
    - ``caption_field``, ``image_field``: the columns of captions and encoded images. Images without a caption are
      dropped.
    - ``score_field``: the column for the scores; None stores none.
    - The other arguments are those of `ImageEmbeddingStage`.
    """

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size", "num_gpus_per_worker")
    loads = ("PIL.Image", "tokenizers", "torch")

    score_threshold: float = 0.2
    text_model: str = DEFAULT_MODEL
    class_names: str = CLASS_NAMES
    caption_field: str = CAPTION
    image_field: str = IMAGE
    score_field: str | None = "conse_similarity"
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    scaled_decode: bool = True
    max_pixels: int = MAX_PIXELS
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        hub: dict[str, Any] = {"cache_dir": self.cache_dir, "hf_token": self.hf_token}
        decoding = ImageInputStage(
            model=lite0.MODEL,
            image_field=self.image_field,
            scaled_decode=self.scaled_decode,
            max_pixels=self.max_pixels,
        )
        model = ConseModelStage(
            **hub,
            text_model=self.text_model,
            class_names=self.class_names,
            model_inference_batch_size=self.model_inference_batch_size,
            num_gpus_per_worker=self.num_gpus_per_worker,
        )
        captions = EmbeddingCreatorStage(
            model_identifier=self.text_model,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            text_field=self.caption_field,
            embedding_field=CAPTION_EMBEDDING,
        )
        similarity = SimilarityStage(
            rule_name="conse_similarity",
            score_threshold=self.score_threshold,
            score_field=self.score_field,
            image_embedding=CONSE_EMBEDDING,
        )
        decoding.name, model.name, captions.name = (f"{self.name} {part}" for part in ("input", "model", "caption"))
        similarity.name = self.name
        return [decoding, model, captions, similarity]
