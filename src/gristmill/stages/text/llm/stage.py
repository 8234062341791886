"""Ask a language model about each document."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from gristmill.errors import PlanError, StopRun
from gristmill.llm.budget import Budget
from gristmill.llm.cache import RequestCache
from gristmill.llm.client import Client
from gristmill.llm.errors import AttemptsFailed, BadAnswer, BudgetSpent, Refused, Unusable
from gristmill.llm.limits import Slots
from gristmill.llm.prompts import PromptTemplate
from gristmill.llm.session import Session
from gristmill.llm.structured import Schema
from gristmill.llm.usage import Usage
from gristmill.logs import logger
from gristmill.sizes import parse_size
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.protocols import Linked, Sink, Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.llm.asking import Asking, Conversation, Document
from gristmill.stages.text.llm.columns import TEXT, bad_record, ids_of, list_of, with_column, without_rows
from gristmill.stages.text.llm.models import ChatModel
from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.arrow import to_rows

IN_OUTPUT = "_gristmill/llm"
"""The folder of the request cache in an output."""
BATCHES_IN_FLIGHT = 16
_ROWS = 64
Prompt = str | Mapping[str, str] | Callable[..., Any]


@builtin
@dataclass(eq=False, repr=False)
class LLMStage(ProcessingStage[DocumentBatch, DocumentBatch], Linked):
    """Ask a language model about each document, and put the answers into columns.

        LLMStage(Endpoint("my-model", "http://127.0.0.1:8000/v1"), "Summarize: {{ text }}", output="summary")

    - ``prompt``: a Jinja template over the columns of a document, run in a sandbox. Or a function of the document that
      returns a text or a list of messages. Or an ``async`` function of the document and ``ask``, for several requests:
      see `gristmill.stages.text.llm.asking.Ask`. Or several of these, by the column of their answer.
    - ``output``: the column of the answer, if there is one prompt.
    - ``system``: instructions, also a template.
    - ``examples``: questions and answers that come before the prompt: ``[{"prompt": ..., "answer": ...}]``.
    - ``completion``: the prompt is continued as text, without a chat.
    - ``image_field``: a column of encoded images. The model gets the image of the document with the prompt.
    - ``schema``: a JSON schema, or a class of pydantic. The column then holds the value of the answer.
    - ``columns``: columns that get properties of the answer, each with the name of the property. With
      ``output=None`` there is no other column.
    - ``samples``: the number of answers per prompt; above 1 the column holds lists. A seed rises by 1 for each.
    - ``parameters``: parameters of the API, such as ``temperature``, ``max_tokens`` and ``seed``.
    - ``budget``: the most that all runs into one output may use: ``{"tokens": 1_000_000}``, or ``{"cost": 20}`` in the
      currency of the model's prices. If it is spent, the run stops, and resumes with a larger one.
    - ``cache``: the folder of the request cache; True: in the output; False: none.
    - ``cache_size``: when a run begins, the oldest answers are removed until the cache has this size.

    A document without a usable answer goes to quarantine, with the reason and the raw answer.
    """

    indifferent = ("budget", "cache", "cache_size")
    accounts_for_documents = True
    loads: ClassVar[tuple[str, ...]] = ("gristmill.llm.session", "jinja2.sandbox")
    max_in_flight = BATCHES_IN_FLIGHT

    model: ChatModel
    prompt: Prompt
    _: KW_ONLY
    output: str | None = "answer"
    system: str | None = None
    examples: Sequence[Mapping[str, str]] = ()
    completion: bool = False
    image_field: str | None = None
    schema: Any = None
    columns: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None
    cache: str | bool = True
    cache_size: int | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, ChatModel):
            raise TypeError(f"model must be an Endpoint or another ChatModel, not {self.model!r}.")
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 1:
            raise ValueError(f"samples must be a whole number of at least 1, not {self.samples!r}.")
        if self.completion and (self.system or self.examples or self.image_field):
            raise ValueError("completion=True has no chat: it cannot have a system prompt, examples or images.")
        if self.cache_size is not None:
            parse_size(self.cache_size)
        self._budget = None if self.budget is None else Budget(**self.budget)
        self.asking = self._asking()
        self._types = self._column_types()
        self.resources = self.model.resources()
        self._cache_folder: str | None = self.cache if isinstance(self.cache, str) else None
        self._has_gpu = False
        self._session: Session | None = None
        self._opening: asyncio.Lock | None = None
        self._begun: Slots | None = None
        self._batches = 0

    def _asking(self) -> Asking:
        prompts: Mapping[str, Any] = (
            self.prompt if isinstance(self.prompt, Mapping) else {self.output or "": self.prompt}
        )
        if not prompts:
            raise ValueError("prompt must not be empty.")
        examples = []
        for one in self.examples:
            if set(one) != {"prompt", "answer"}:
                raise ValueError(f'an example is {{"prompt": ..., "answer": ...}}, not {one!r}.')
            examples.append((one["prompt"], one["answer"]))
        return Asking(
            prompts={column: one if callable(one) else PromptTemplate(one) for column, one in prompts.items()},
            parameters=dict(self.parameters),
            system=None if self.system is None else PromptTemplate(self.system),
            examples=examples,
            is_chat=not self.completion,
            image_field=self.image_field,
            schema=None if self.schema is None else Schema.of(self.schema),
            samples=self.samples,
        )

    def _column_types(self) -> dict[str, Mapping[str, Any]]:
        """The columns that it makes, each with the JSON schema of its values."""
        answer = TEXT if self.asking.schema is None else self.asking.schema.schema
        made = {column: answer for column in self.asking.prompts if column}
        if self.columns:
            properties = answer.get("properties", {})
            if len(self.asking.prompts) > 1:
                raise ValueError("columns are for a single prompt.")
            if unknown := sorted(set(self.columns.values()) - set(properties)):
                raise ValueError(f"columns name {', '.join(map(repr, unknown))}, which the schema does not have.")
            made |= {column: _resolved(properties[name], answer) for column, name in self.columns.items()}
        if not made:
            raise ValueError("output=None needs columns: the answers would go nowhere.")
        return made if self.samples == 1 else {column: list_of(one) for column, one in made.items()}

    # What planning asks --------------------------------------------------------------------------------------------

    def _template_columns(self) -> list[str] | None:
        """The columns that prompts name; None if a function may use any."""
        parts = [*self.asking.prompts.values(), self.asking.system]
        known = [part for part in parts if isinstance(part, PromptTemplate | Conversation)]
        if len(known) < sum(part is not None for part in parts):
            return None
        named = {name for part in known for name in part.columns}
        return sorted(named | ({self.image_field} if self.image_field is not None else set()))

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self._template_columns() or []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self._types)

    def columns_needed(self) -> list[str] | None:
        return self._template_columns()

    def num_workers(self) -> int | None:
        return self.model.num_workers()

    def check_needs(self) -> None:
        for module, name in (("jinja2", "Jinja2"), ("jsonschema", "jsonschema")):
            if find_spec(module) is None:
                raise PlanError(f"{self.name!r} needs {name}: pip install 'gristmill[llm]'.")
        self.model.check_needs()

    def linked(self, before: Stages, after: Stages) -> Self:
        """Return a copy whose request cache is in the output of the pipeline."""
        clone = copy.copy(self)
        sink = next((stage for stage in reversed(after) if isinstance(stage, Sink)), None)
        if self.cache is not True or sink is None:
            return clone
        if sink.folder.is_local:
            clone._cache_folder = os.path.abspath(sink.folder.full_path(IN_OUTPUT))
        else:
            logger.warning(
                "%s: answers are not stored, since the output is not on this machine: name a local folder in cache=",
                self.name,
            )
        return clone

    # In the worker ---------------------------------------------------------------------------------------------------

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._has_gpu = worker_metadata is not None and bool(worker_metadata.gpus)
        self._session = None

    def teardown(self) -> None:
        if self._session is not None:
            self._session.abandon()
            self._session = None

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        rank = self._batches = self._batches + 1
        used = Usage()
        try:
            session = await self._opened()
            results = await self._answers(task, session, used, rank)
            await session.flush()
        except (Unusable, BudgetSpent, PlanError) as error:
            raise StopRun(f"{self.name}: {error}") from None
        return self._answered(task, results, used)

    async def _opened(self) -> Session:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._session is None:
                session = self._new_session()
                self._begun = Slots(2 * session.client.limits.most)
                try:
                    await session.open()
                except BaseException:
                    await session.close()
                    raise
                self._session = session
        return self._session

    def _new_session(self) -> Session:
        model = self.model
        cache = None if self._cache_folder is None or self.cache is False else RequestCache(self._cache_folder)
        if cache is not None and self.cache_size is not None:
            cache.prune(parse_size(self.cache_size))
        client = Client(model.backend(self._has_gpu), model.limits(), model.prices(), cache, self._budget)
        return Session(client, model.running_server(), model.way)

    def _documents(self, task: DocumentBatch) -> Iterator[Document]:
        """The documents as dicts, a few at a time: many may wait for a long while."""
        names = self._template_columns()
        table = task.data if names is None else task.data.select(names)
        for start in range(0, table.num_rows, _ROWS):
            yield from to_rows(table.slice(start, _ROWS))

    async def _answers(
        self, batch: DocumentBatch, session: Session, used: Usage, rank: int
    ) -> list[dict[str, Any] | Exception]:
        """The answers about each document, or why there are none."""
        assert self._begun is not None
        results: list[dict[str, Any] | Exception] = [{}] * batch.num_items
        tasks: set[asyncio.Task[None]] = set()
        stop: list[Exception] = []
        begun = self._begun

        async def one(row: int, document: Document) -> None:
            try:
                results[row] = await self.asking.values(document, session, used, rank)
            except (Unusable, BudgetSpent, PlanError) as error:
                stop.append(error)
            except Exception as error:
                results[row] = error
            finally:
                begun.release()

        try:
            documents = self._documents(batch)
            for row in range(batch.num_items):
                await begun.acquire(rank)
                document = next(documents)
                if stop:
                    begun.release()
                    break
                task = asyncio.create_task(one(row, document))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if stop:
            raise stop[0]
        return results

    def _answered(
        self, task: DocumentBatch, results: Sequence[dict[str, Any] | Exception], used: Usage
    ) -> DocumentBatch:
        problems: dict[int, BadRecord] = {}
        good: list[dict[str, Any]] = []
        idents = ids_of(task) if any(isinstance(one, Exception) for one in results) else []
        for row, result in enumerate(results):
            if isinstance(result, Exception):
                problems[row] = self._problem(idents[row], result)
            else:
                good.append(self._expanded(result))
        if problems and not task.has_ids:
            first = next(iter(problems.values()))
            logger.warning("%s: %d documents without an answer are dropped: %s", self.name, len(problems), first.reason)
        made = without_rows(task, problems)
        table = made.data
        for column, schema in self._types.items():
            table = with_column(table, column, [one[column] for one in good], schema)
        account = made.take_account()
        made.data = table
        if account is not None:
            made.account = account
        made.account.counters.update(used.taken())
        if self._session is not None and self._session.client.is_automatic:
            made.account.notes["requests_in_flight"] = self._session.client.slots.limit
        return made

    def _expanded(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of all columns: those of ``columns`` are properties of the answer."""
        for column, name in self.columns.items():
            answer = next(iter(values.values()))
            is_one = self.samples == 1
            values[column] = answer.get(name) if is_one else [one.get(name) for one in answer]
        return values

    def _problem(self, ident: str, error: Exception) -> BadRecord:
        """Why a document has no answer. One that was never answered may be so next time."""
        if isinstance(error, BadAnswer):
            return bad_record(ident, str(error), error.raw, may_pass=False)
        if isinstance(error, Refused | AttemptsFailed):
            return bad_record(ident, str(error), "", may_pass=isinstance(error, AttemptsFailed))
        return bad_record(ident, f"{type(error).__name__}: {error}", "", may_pass=True)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that is a reference into another one, looked up there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Any = root
    for part in reference[2:].split("/"):
        found = found[part]
    return _resolved(found, root)


__all__ = ["LLMStage"]
