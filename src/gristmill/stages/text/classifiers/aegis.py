"""Unsafe content by Llama Guard with NVIDIA's Aegis adapter, and poisoned instructions by the states of that model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import BatchSize
from gristmill.models.loading import ModelSpec
from gristmill.models.nvidia import GuardNet, NextToken
from gristmill.models.prompt import Prompt, PromptTokenizer
from gristmill.models.tokenizer import ModelTokenizer, ReadLimits, Truncation, load_tokenizer, token_limit
from gristmill.models.tokens import TokenLists
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.classifiers.answers import SAFE, UNKNOWN, label_of
from gristmill.stages.text.classifiers.base import TextClassifier, precision
from gristmill.stages.text.models.model import ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS, TokenizerStage

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.models.engine import TaskInference

BASE_MODEL = "meta-llama/LlamaGuard-7b"
DEFENSIVE = "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0"
PERMISSIVE = "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Permissive-1.0"
GUARD = "nvidia/instruction-data-guard"
MOST_ANSWER = 16
"""Tokens of an answer that are read at most: those of "unsafe", a new line and a category are five."""
POISONED_FROM = 0.5


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class PromptTokenizerStage(TokenizerStage):
    """Tokenizes each text inside a prompt. The tokens that all prompts begin with are omitted."""

    prompt_path: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prompts: PromptTokenizer | None = None

    def check_needs(self) -> None:
        super().check_needs()
        Prompt.read(self.prompt_path)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._prompts = prompts_of(self.checkpoint, self.prompt_path, self._limits)

    def tokens_of(self, texts: Sequence[str | None]) -> tuple[TokenLists, Truncation]:
        assert self._prompts is not None, "setup() comes first"
        return self._prompts.tokens(texts)


def prompts_of(checkpoint: Checkpoint, prompt_path: str, limits: ReadLimits) -> PromptTokenizer:
    """Return the tokenizer of prompts, the same in the stages that tokenize and compute."""
    return PromptTokenizer(load_tokenizer(checkpoint), Prompt.read(prompt_path), limits)


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class AegisModelStage(ModelStage):
    """The model of `AegisClassifier`: it reads the most probable next token, and more only after "unsafe"."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str
    adapter: str
    prompt_path: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    label_field: str = "aegis_pred"
    score_field: str | None = None
    raw_output_field: str | None = None
    autocast: bool = True
    model_inference_batch_size: BatchSize = 64
    token_field: str = TOKENS

    def __post_init__(self) -> None:
        base = Checkpoint(self.model_identifier, self.cache_dir, self.hf_token)
        adapter = Checkpoint(self.adapter, self.cache_dir, self.hf_token)
        spec = ModelSpec(base, NextToken(), adapter, precision=precision(self.autocast))
        super().__init__(spec, self.model_inference_batch_size, self.token_field)
        self._tokenizer: ModelTokenizer | None = None

    def loaded_spec(self) -> ModelSpec:
        base = self.spec.checkpoint
        self._tokenizer = load_tokenizer(base)
        prefix = prompts_of(base, self.prompt_path, ReadLimits(tokens=token_limit(base, None))).prefix
        return replace(self.spec, head=NextToken((_first_token(self._tokenizer, SAFE),)), prefix=prefix)

    def result_columns(self) -> list[str]:
        return [name for name in (self.label_field, self.score_field, self.raw_output_field) if name is not None]

    async def compute(self, inference: TaskInference, tokens: TokenLists) -> Mapping[str, pa.Array]:
        from gristmill.tasks.arrow import number_array, string_array

        rows = await inference.run(tokens)
        answers = [[token] for token in rows[:, 0].astype(np.int64).tolist()]
        labels = await self._labels(inference, tokens, answers)
        columns: dict[str, pa.Array] = {self.label_field: string_array(labels)}
        if self.score_field is not None:
            columns[self.score_field] = number_array(1 - np.exp(rows[:, 1]))
        if self.raw_output_field is not None:
            columns[self.raw_output_field] = string_array([self._text(answer) for answer in answers])
        return columns

    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        raise TypeError("an answer may need several passes of the model: see compute()")

    async def _labels(self, inference: TaskInference, tokens: TokenLists, answers: list[list[int]]) -> list[str]:
        """The label of each answer. Answers that are not complete get more tokens, the most probable ones."""
        labels = [self._label(answer) for answer in answers]
        while open_ones := [place for place, label in enumerate(labels) if label is None]:
            texts = tokens.take(open_ones)
            longer = [
                [*texts.ids[start:stop].tolist(), *answers[place]]
                for place, start, stop in zip(open_ones, texts.offsets[:-1], texts.offsets[1:], strict=True)
            ]
            rows = await inference.run(TokenLists.from_lists(longer))
            for place, token in zip(open_ones, rows[:, 0].astype(np.int64).tolist(), strict=True):
                answers[place].append(token)
                labels[place] = self._label(answers[place])
        return [label for label in labels if label is not None]

    def _label(self, answer: list[int]) -> str | None:
        ends = self.spec.checkpoint.config.get("eos_token_id")
        is_over = answer[-1] in (ends if isinstance(ends, list) else [ends])
        label = label_of(self._text(answer), is_over)
        return UNKNOWN if label is None and len(answer) >= MOST_ANSWER else label

    def _text(self, answer: Sequence[int]) -> str:
        assert self._tokenizer is not None, "setup() comes first"
        return self._tokenizer.decode(answer)


def _first_token(tokenizer: ModelTokenizer, word: str) -> int:
    return tokenizer.encode([word])[0][0]


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class AegisClassifier(TextClassifier):
    """Labels documents as safe, or with the category of unsafe content, O1 to O13, by Llama Guard and an Aegis adapter.

        AegisClassifier(prompt_path="aegis_prompt.txt", filter_by=["safe"])

    ``prompt_path`` is the prompt that the adapter was trained with: a text file with ``{text}`` where the document
    goes. The page of the adapter on the Hugging Face hub shows it. ``aegis_variant`` is the adapter, and ``base_model``
    the model that it is added to: folders or repositories. Llama Guard is gated: ask for access, and give ``hf_token``.

    ``label_field`` is "unknown" if the model answers in another way. ``score_field`` gets the probability that the
    answer does not begin with "safe". ``keep_raw_output`` keeps the answer, as far as it was read. The tokens that all
    prompts begin with are computed once, and of most documents one token's logits are read. See `TextClassifier` for
    the other arguments; ``keep_tokens`` and ``use_existing_tokens`` do not apply.
    """

    prompt_path: str | None = None
    aegis_variant: str = DEFENSIVE
    base_model: str = BASE_MODEL
    label_field: str = "aegis_pred"
    score_field: str | None = None
    raw_output_field: str = "_aegis_raw_pred"
    keep_raw_output: bool = False
    max_chars: int | None = 6000
    model_inference_batch_size: BatchSize = 64

    def __post_init__(self) -> None:
        if self.keep_tokens or self.use_existing_tokens:
            raise ValueError(
                "AegisClassifier: the model reads a prompt, so it neither takes nor keeps tokens of texts."
            )

    @property
    def model_name(self) -> str:
        return str(self.base_model)

    @property
    def label_column(self) -> str:
        return self.label_field

    @property
    def score_column(self) -> str | None:
        return self.score_field

    def tokenizer_stage(self) -> ProcessingStage[Any, Any]:
        return PromptTokenizerStage(
            prompt_path=self._prompt(),
            model_identifier=self.model_name,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            text_field=self.text_field,
            max_chars=self.max_chars,
            max_seq_length=self.longest,
            token_field=self.token_field,
        )

    def model_stage(self, **common: Any) -> ModelStage:
        common.pop("keep_tokens")
        return AegisModelStage(
            **common,
            adapter=str(self.aegis_variant),
            prompt_path=self._prompt(),
            label_field=self.label_field,
            score_field=self.score_field,
            raw_output_field=self.raw_output_field if self.keep_raw_output else None,
        )

    def _prompt(self) -> str:
        if self.prompt_path is None:
            raise ModelError(
                "AegisClassifier needs the prompt that its adapter was trained with, which lists the categories.\n"
                f"    copy it from https://huggingface.co/{DEFENSIVE} into a text file, with {{text}} where the\n"
                "    document goes, and name it: prompt_path='aegis_prompt.txt'."
            )
        return str(self.prompt_path)


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class GuardModelStage(ModelStage):
    """The model of `InstructionDataGuardClassifier`."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str
    adapter: str
    model: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    label_field: str = "is_poisoned"
    score_field: str = "instruction_data_guard_poisoning_score"
    autocast: bool = True
    model_inference_batch_size: BatchSize = 64
    token_field: str = TOKENS
    keep_tokens: bool = False

    def __post_init__(self) -> None:
        base, adapter, guard = (
            Checkpoint(name, self.cache_dir, self.hf_token)
            for name in (self.model_identifier, self.adapter, self.model)
        )
        spec = ModelSpec(base, GuardNet(guard), adapter, precision=precision(self.autocast))
        super().__init__(spec, self.model_inference_batch_size, self.token_field, self.keep_tokens)

    def result_columns(self) -> list[str]:
        return [self.score_field, self.label_field]

    def results(self, rows: Array) -> Mapping[str, pa.Array]:

        from gristmill.tasks.arrow import mask_array, number_array

        scores = np.ascontiguousarray(rows[:, 0])
        labels: pa.Array = mask_array(scores >= POISONED_FROM)
        return {self.score_field: number_array(scores), self.label_field: labels}


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class InstructionDataGuardClassifier(TextClassifier):
    """Scores how likely English instructions with their responses are to poison a model, by
    nvidia/instruction-data-guard.

    The text is an instruction, an input and a response in one. ``score_field`` gets a number from 0 to 1,
    ``label_field`` whether it is at least 0.5; ``filter_by=[False]`` keeps the others. ``model`` reads the states of
    Llama Guard (``base_model``, which is gated) with an adapter (``aegis_variant``): folders or repositories. Review
    what it finds: false alarms are common. See `TextClassifier` for the other arguments.
    """

    model: str = GUARD
    aegis_variant: str = DEFENSIVE
    base_model: str = BASE_MODEL
    label_field: str = "is_poisoned"
    score_field: str = "instruction_data_guard_poisoning_score"
    model_inference_batch_size: BatchSize = 64

    @property
    def model_name(self) -> str:
        return str(self.base_model)

    @property
    def label_column(self) -> str:
        return self.label_field

    @property
    def score_column(self) -> str | None:
        return self.score_field

    def model_stage(self, **common: Any) -> ModelStage:
        return GuardModelStage(
            **common,
            adapter=str(self.aegis_variant),
            model=str(self.model),
            label_field=self.label_field,
            score_field=self.score_field,
        )
