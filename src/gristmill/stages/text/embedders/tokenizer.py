"""Texts to token ids for an embedding model: with a prompt, and in chunks if long documents are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.models.chunks import ChunkTokenizer
from gristmill.models.sentence import SentenceEmbedding
from gristmill.models.tokenizer import ReadLimits, Truncation, check_vocabulary, load_tokenizer
from gristmill.models.tokens import TokenLists
from gristmill.stages.core import WorkerMetadata
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.models.tokenizer import TokenizerStage

TRUNCATE, AVERAGE = "truncate", "average"


@builtin_internal
@dataclass(eq=False, repr=False)
class EmbeddingTokenizerStage(TokenizerStage):
    """The tokenizer of an `EmbeddingCreatorStage`, which explains the arguments."""

    use_sentence_transformer: bool = True
    prompt: str | None = None
    prompt_name: str | None = None
    long_documents: str = TRUNCATE

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chunks: ChunkTokenizer | None = None

    def check_needs(self) -> None:
        self.checkpoint.check_tokenizer()
        check_vocabulary(self.checkpoint)
        self._reading()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        prompt, limit, lowercase = self._reading()
        tokenizer = load_tokenizer(self.checkpoint, lowercase)
        limits = ReadLimits(self.max_chars, limit)
        self._chunks = ChunkTokenizer(tokenizer, prompt, limits, self.long_documents == AVERAGE)

    def tokens_of(self, texts: Sequence[str | None]) -> tuple[TokenLists, Truncation]:
        assert self._chunks is not None, "setup() comes first"
        return self._chunks.tokens(texts)

    def _reading(self) -> tuple[str, int | None, bool]:
        """The prompt, the most tokens of a text, and whether texts are converted to lower case."""
        config = SentenceEmbedding(own_modules=self.use_sentence_transformer).config(self.checkpoint)
        prompt = config.prompt(self.checkpoint, self.prompt, self.prompt_name)
        return prompt, config.limit(self.checkpoint, self.max_seq_length), config.lowercase
