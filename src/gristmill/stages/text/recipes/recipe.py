"""Recipes: published rules in order."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.near_names import did_you_mean
from gristmill.stages.registry import registered


@dataclass(frozen=True)
class Rule:
    """One rule: a registered filter or modifier with its arguments."""

    key: str
    """Its name in the recipe, in ``set`` and in ledgers."""
    name: str
    """The registered name of the filter or modifier."""
    arguments: Mapping[str, Any]
    says: str
    """The published rule, in our words."""
    note: str = ""
    """Where it is published, if not with the recipe, and how it differs here."""
    field: str | None = None
    """The column that it reads unless the user names another; None: the filter's own default."""

    def make(self, changes: Mapping[str, Any]) -> Any:
        """Return the filter or modifier, with the arguments of ``changes`` in place of its own."""
        cls = registered(self.name)
        takes = list(inspect.signature(cls).parameters)
        for argument in changes:
            if argument not in takes:
                hint = did_you_mean(argument, takes, f"There are: {', '.join(takes)}.")
                raise ValueError(f"rule {self.key!r} has no {argument!r}.{hint}")
        made = cls(**{**self.arguments, **changes})
        made.name = self.key
        if self.field is not None:
            made.default_field = self.field
        return made


@dataclass(frozen=True)
class Recipe:
    """Rules under a name. The rules of a version never change; other rules get another version."""

    name: str
    version: int
    summary: str
    source: str
    """Where it is published."""
    rules: tuple[Rule, ...] = field(repr=False)

    def __post_init__(self) -> None:
        keys = [rule.key for rule in self.rules]
        if len(set(keys)) != len(keys):
            raise ValueError(f"recipe {self.name!r} has two rules of one name: name each rule once")

    def make(self, changes: Mapping[str, Any]) -> list[Any]:
        """Return the filters and modifiers in order.

        ``changes`` are arguments by ``rule.argument``, or mappings of arguments by rule. A rule that is False is
        skipped.
        """
        by_rule: dict[str, dict[str, Any]] = {rule.key: {} for rule in self.rules}
        skipped = set()
        for name, value in changes.items():
            key, dot, argument = name.partition(".")
            if key not in by_rule:
                hint = did_you_mean(key, by_rule, f"There are: {', '.join(by_rule)}.")
                raise ValueError(f"recipe {self.name!r} has no rule {key!r}.{hint}")
            if dot:
                by_rule[key][argument] = value
            elif isinstance(value, Mapping):
                by_rule[key].update(value)
            elif value is False:
                skipped.add(key)
            else:
                raise ValueError(
                    f"set: {key!r} wants a mapping of arguments, or false to leave the rule out, not {value!r}"
                )
        made = [rule.make(by_rule[rule.key]) for rule in self.rules if rule.key not in skipped]
        if not made:
            raise ValueError(f"recipe {self.name!r} has no rules left")
        return made
