"""Scores by a language model and a rubric, and documents dropped by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.llm.base import TEXT, LLMTask
from gristmill.tasks import DocumentBatch

REASON = "reason"
_PROMPT = """\
Assess the document below by {what}. Give a whole number from {low} (worst) to {high} (best){each}.

{rubric}

First write one or two sentences that justify your assessment. Then give the number.

<document>
{text}
</document>"""


@builtin
@dataclass(eq=False, repr=False)
class LLMJudge(LLMTask):
    """Score each document by a rubric, and drop those with a low score if ``min_score`` is given.

        LLMJudge(model, "5: a clear, complete lesson. 1: no educational value.", output="lesson", min_score=3)

    - ``rubric``: what the scores mean; or several criteria, each with its rubric.
    - ``scale``: the lowest and the highest score.
    - ``output``: the column of the score. With several criteria it has their mean, and each criterion has a column
      ``<output>_<criterion>``. The justification is in ``<output>_reason``.
    - ``min_score``: documents with a lower score are dropped, with their score.
    """

    rubric: str | Mapping[str, str]
    _: KW_ONLY
    scale: Sequence[int] = (1, 5)
    output: str = "score"
    min_score: float | None = None

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        low, high = self._scale()
        several = isinstance(self.rubric, Mapping)
        rubrics: Mapping[str, str] = self.rubric if isinstance(self.rubric, Mapping) else {"score": self.rubric}
        if not rubrics or not all(isinstance(text, str) and text.strip() for text in rubrics.values()):
            raise ValueError(f"rubric must be a text, or a mapping of criteria to texts, not {self.rubric!r}.")
        shown = "\n\n".join(f"{name}: {text}" for name, text in rubrics.items()) if several else rubrics["score"]
        words = _PROMPT.format(
            what="these criteria" if several else "this rubric",
            low=low,
            high=high,
            each=" for each criterion" if several else "",
            rubric=literal(shown),
            text=TEXT,
        )
        number = {"type": "integer", "minimum": low, "maximum": high}
        schema = {
            "type": "object",
            "properties": {REASON: {"type": "string", "maxLength": 500}, **dict.fromkeys(rubrics, number)},
            "required": [REASON, *rubrics],
            "additionalProperties": False,
        }
        if REASON in rubrics:
            raise ValueError(f"a criterion cannot be named {REASON!r}.")
        columns = {f"{self.output}_{name}": name for name in rubrics} if several else {self.output: "score"}
        asked = self.llm(
            self.template(words), schema=schema, output=None, columns={**columns, f"{self.output}_{REASON}": REASON}
        )
        least = LeastScore(self.output, list(columns) if several else None, self.min_score)
        least.name = f"{self.name} filter"
        return [asked, least] if several or self.min_score is not None else [asked]

    def _scale(self) -> tuple[int, int]:
        if len(self.scale) != 2 or not all(type(one) is int for one in self.scale) or self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale must be two whole numbers, the lowest first, not {self.scale!r}.")
        return self.scale[0], self.scale[1]


@builtin_internal
class LeastScore(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Take the mean of some columns, and drop documents with less than a score."""

    accounts_for_documents = True
    row_wise = True

    def __init__(self, field: str, of: list[str] | None, least: float | None) -> None:
        self.field = field
        self.of = of
        self.least = least

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.field] if self.of is None else self.of

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [] if self.of is None else [self.field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        from gristmill.stages.text.llm.columns import with_column

        table = task.data
        if self.of is not None:
            rows = zip(*(table.column(name).to_pylist() for name in self.of), strict=True)
            means = [sum(row) / len(row) for row in rows]
            account = task.take_account()
            task.data = with_column(table, self.field, means, {"type": "number"})
            if account is not None:
                task.account = account
        if self.least is None:
            return task
        scores = task.data.column(self.field).to_pylist()
        mask = [score is not None and score >= self.least for score in scores]
        return task.keep(mask, "score too low", [score for score, kept in zip(scores, mask, strict=True) if not kept])


def literal(text: str) -> str:
    """Return a text of the user's for a template, where it is not one itself."""
    return "{% raw %}" + text.replace("{% endraw %}", "") + "{% endraw %}" if "{" in text else text
