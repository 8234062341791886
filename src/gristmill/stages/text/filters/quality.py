"""Quality by a classifier, with a lot drawn for what is not good."""

from __future__ import annotations

from hashlib import blake2b

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters import fasttext_model
from gristmill.stages.text.filters.document_filter import DocumentFilter

LOT_BITS = 28
SCORE_BITS = 24
"""Of a float's 52 bits behind the point: those of the model's single-precision score, and behind them the lot."""


@builtin
class FastTextQualityFilter(DocumentFilter):
    """Keeps good documents, and some of the others: the better, the likelier (as for GPT-3).

    The score is the probability of ``label`` by the fastText model ``model_path``. A document is kept if a number drawn
    from a Pareto distribution with ``alpha`` is above 1 - score. It is drawn by a hash of the text and ``seed``, so a
    text has the same verdict in each run, in any worker and beside any other. The lot travels in the digits of the
    score from the eighth on, so scores that were stored give the same verdicts later.
    """

    name = "fasttext_quality"

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
        lot = int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "big") >> (64 - LOT_BITS)
        steps = min(int(quality * 2**SCORE_BITS), 2**SCORE_BITS - 1)
        return (steps * 2**LOT_BITS + lot) / 2 ** (SCORE_BITS + LOT_BITS)

    def keep_batch(self, scores: Array) -> Array:
        scores = np.asarray(scores, dtype=np.float64)
        lots = np.floor(scores * 2.0 ** (SCORE_BITS + LOT_BITS)) % 2.0**LOT_BITS
        pareto = (1 - lots / 2.0**LOT_BITS) ** (-1 / self.alpha) - 1
        kept: Array = pareto > 1 - scores
        return kept

    def rule(self) -> str:
        return f"Pareto({self.alpha:g}) > 1 - score"
