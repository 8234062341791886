"""Answers as JSON: the schema, validation, and what to ask for if an answer does not match."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.llm.errors import BadAnswer

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_LONGEST_PROBLEM = 300
_FENCE = "```"
PROBE_PROPERTY = "gristmill_probe"
PROBE_SCHEMA = {
    "type": "object",
    "properties": {PROBE_PROPERTY: {"type": "boolean"}},
    "required": [PROBE_PROPERTY],
    "additionalProperties": False,
}
"""A schema that no answer matches if the model does not get it."""
PROBE_PROMPT = "Name a fruit."


class Schema:
    """The schema of answers."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema

        self.schema = schema
        try:
            jsonschema.validators.validator_for(schema).check_schema(schema)
        except jsonschema.SchemaError as error:
            where = "/".join(map(str, error.absolute_path))
            raise ValueError(f"the schema is not a JSON schema: {error.message} (at {where or 'its top'}).") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema}  # the validator is made again

    @classmethod
    def of(cls, given: Any) -> Schema:
        """Return the schema of a JSON schema or a pydantic model."""
        if isinstance(given, Mapping):
            return cls(given)
        if isinstance(given, type):
            import pydantic

            if issubclass(given, pydantic.BaseModel):
                return cls(_closed(given.model_json_schema()))
        raise ValueError(f"schema must be a JSON schema (a mapping) or a class of pydantic.BaseModel, not {given!r}.")

    def parsed(self, text: str) -> Any:
        """Return the value of an answer. Raise `BadAnswer` if it does not match."""
        try:
            value = fast_json.loads(unfenced(text))
        except ValueError as error:
            raise BadAnswer(f"the answer is not JSON: {error}"[:_LONGEST_PROBLEM], text) from None
        if problem := next(iter(self._validator.iter_errors(value)), None):
            where = "/".join(map(str, problem.absolute_path))
            words = problem.message[:_LONGEST_PROBLEM]
            raise BadAnswer(f"the answer does not match the schema at {where or 'its top'}: {words}", text)
        return value

    def instruction(self) -> str:
        """Return the words that ask for such an answer, for models that are not constrained."""
        text = fast_json.dumps(dict(self.schema)).decode()
        return f"Answer with one JSON value that matches this JSON schema, and with nothing else:\n{text}"

    @cached_property
    def _validator(self) -> Validator:
        import jsonschema
        import referencing

        # A registry of its own: nothing is fetched for a reference to an address.
        made: Validator = jsonschema.validators.validator_for(self.schema)(self.schema, registry=referencing.Registry())
        return made


def unfenced(text: str) -> str:
    """Return an answer without the Markdown fence that models put around JSON, and without white space around it."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        text = text.partition("\n")[2].removesuffix(_FENCE).strip()
    return text


def repair_words(problem: str) -> str:
    """Return the words that ask for a corrected answer."""
    return f"This cannot be used: {problem}. Write the whole answer again, corrected, as JSON and nothing else."


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of pydantic whose objects have no other properties than it names, as constrained models need it."""
    made = copy.deepcopy(schema)
    todo: list[Any] = [made]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if part.get("type") == "object" and "properties" in part:
                part.setdefault("additionalProperties", False)
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return made
