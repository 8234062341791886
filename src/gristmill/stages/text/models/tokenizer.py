"""Texts to token ids, on CPU workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.tokenizer import (
    ModelTokenizer,
    ReadLimits,
    Truncation,
    check_vocabulary,
    load_tokenizer,
    token_limit,
)
from gristmill.models.tokens import TokenLists
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.filters.columns import column_of, only_texts_of, set_column
from gristmill.tasks import DocumentBatch

TOKENS = "_gristmill_tokens"
"""The column of token ids between a tokenizer and a model, which removes it."""


@builtin_internal
@dataclass(eq=False, repr=False)
class TokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a column of the token ids of each text, as the tokenizer of a model makes them. The text stays as it is.

    The model reads at most ``max_chars`` characters and ``max_seq_length`` tokens of a text, special tokens included;
    by default as many tokens as it can take. The summary of the run counts documents that it does not read to their
    end. Column ``token_field`` holds a list for each text, without padding. A missing text is an empty one.
    """

    accounts_for_documents = True
    row_wise = True
    indifferent = ("cache_dir", "hf_token")

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    token_field: str = TOKENS

    def __post_init__(self) -> None:
        for name, value in (("max_chars", self.max_chars), ("max_seq_length", self.max_seq_length)):
            if value is not None and value < 1:
                raise ValueError(f"TokenizerStage: {name} must be at least 1, not {value!r}.")
        self.checkpoint = Checkpoint(str(self.model_identifier), self.cache_dir, self.hf_token)
        self._tokenizer: ModelTokenizer | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.token_field]

    def check_needs(self) -> None:
        self.checkpoint.check_tokenizer()
        check_vocabulary(self.checkpoint)
        token_limit(self.checkpoint, self.max_seq_length)

    def preload(self) -> None:
        import tokenizers  # noqa: F401  # imported once for all workers

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.checkpoint.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._tokenizer = load_tokenizer(self.checkpoint)
        self._limits = ReadLimits(self.max_chars, token_limit(self.checkpoint, self.max_seq_length))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        tokens, cut = self.tokens_of(_texts(task, self.text_field))
        set_column(task, self.token_field, tokens.to_arrow())
        task.account.counters.update(cut.counters())
        return task

    def tokens_of(self, texts: Sequence[str | None]) -> tuple[TokenLists, Truncation]:
        """The tokens of each text, and what was cut."""
        assert self._tokenizer is not None, "setup() comes first"
        return self._tokenizer.tokens(texts, self._limits)


def _texts(task: DocumentBatch, field: str) -> list[str | None]:
    import pyarrow as pa

    from gristmill.tasks.arrow import is_json

    if field in task.data.column_names and is_json(task.data.schema.field(field)):
        only_texts_of(task, field)  # which makes it a column of texts, if all of its values are
    column: Any = column_of(task, field)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column {field!r} holds {kind}, not text: set text_field to the column of the text.")
    texts: list[str | None] = column.to_pylist()
    return texts
