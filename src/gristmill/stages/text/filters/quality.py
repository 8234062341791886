"""Quality by a classifier: good documents, and a random part of the others."""

from __future__ import annotations

from hashlib import blake2b

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters import fasttext_model
from gristmill.stages.text.filters.document_filter import DocumentFilter

RANDOM_BITS = 28
SCORE_BITS = 24
"""Of the 52 bits of a float's fraction: first those of the model's single-precision score, then the random number."""


@builtin
class FastTextQualityFilter(DocumentFilter):
    """Keeps good documents and some of the others, better ones with a higher probability (as for GPT-3).

    The score is the probability of ``label`` by the fastText model ``model_path``. A document is kept if a number from
    a Pareto distribution with ``alpha`` is above 1 - score. The number is computed from a hash of the text and
    ``seed``, so a text has the same verdict in each run, worker and batch. The digits of the score from the eighth on
    contain the number, so stored scores give the same verdicts later.
    """

    name = "fasttext_quality"
    rule_text = "Pareto({0.alpha:g}) > 1 - score"

    def __init__(self, model_path: str, label: str = "__label__hq", alpha: float = 3, seed: int = 42) -> None:
        if alpha <= 0:
            raise ValueError(f"FastTextQualityFilter: alpha must be above 0, not {alpha!r}.")
        self.model_path = model_path
        self.label = label
        self.alpha = alpha
        self.seed = seed

    def preload(self) -> None:
        fasttext_model.load(self.model_path)

    setup = preload

    def score_document(self, text: str) -> float:
        line = text.replace("\n", " ").replace(fasttext_model.LABEL, " ")
        label, probability = fasttext_model.best(fasttext_model.load(self.model_path), line)
        quality = probability if label == self.label else 1 - probability
        key = str(self.seed).encode()[:64]
        number = int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "big") >> (64 - RANDOM_BITS)
        steps = min(int(quality * 2**SCORE_BITS), 2**SCORE_BITS - 1)
        return (steps * 2**RANDOM_BITS + number) / 2 ** (SCORE_BITS + RANDOM_BITS)

    def keep_batch(self, scores: Array) -> Array:
        scores = np.asarray(scores, dtype=np.float64)
        numbers = np.floor(scores * 2.0 ** (SCORE_BITS + RANDOM_BITS)) % 2.0**RANDOM_BITS
        pareto = (1 - numbers / 2.0**RANDOM_BITS) ** (-1 / self.alpha) - 1
        kept: Array = pareto > 1 - scores
        return kept
