"""The unit that flows between stages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from gristmill.tasks.account import Account

T = TypeVar("T")

PASSING = ("_account", "_cache", "_selected")
"""What a task object carries within a worker only: neither pickled nor copied."""


@dataclass
class Task(Generic[T]):
    """One batch of data with a stable id.

    A subclass need define nothing; it may narrow ``data``, add fields with defaults, and say how many items it
    holds (``num_items``) and how it is cut (``slice``).

        @dataclass
        class Numbers(Task[list]):
            data: list = field(default_factory=list)

            @property
            def num_items(self) -> int:
                return len(self.data)
    """

    data: T = None  # type: ignore[assignment]  # so that a subclass may give its own default, or none
    dataset_name: str = ""
    task_id: str = ""
    """Given by the engine: ``0``, ``1``, ... at the source, ``<parent>.<n>`` where a stage fans out."""
    _metadata: dict[str, Any] = field(default_factory=dict)
    named: ClassVar[bool] = False
    """Whether the id is given by who makes the task, not by its place among the initial tasks."""

    @property
    def account(self) -> Account:
        """What the stage that returns this task has to say about documents; the engine takes it off."""
        account = self.__dict__.get("_account")
        if account is None:
            account = self.__dict__["_account"] = Account()
        return account

    def take_account(self) -> Account | None:
        """The account, if there is one, which is then gone from the task."""
        account: Account | None = self.__dict__.pop("_account", None)
        return account

    @property
    def num_items(self) -> int:
        """How many records the task stands for in accounts and rates."""
        return 1

    def validate(self) -> bool:
        """Whether the data is fit to be processed."""
        return True

    def slice(self, start: int, stop: int) -> Self | None:
        """A task of the items ``start`` up to ``stop``, with the same id; None if the task cannot be cut.

        The engine cuts a failing task in halves to find the item at fault. Slices that cover all items must hold
        all the data, each item once.
        """
        return None

    def _with_data(self, data: T) -> Self:
        """A shallow copy that holds ``data``; the metadata is a dict of its own."""
        clone = object.__new__(type(self))
        clone.__dict__.update({k: v for k, v in self.__dict__.items() if k not in PASSING})
        for f in dataclasses.fields(self):  # those of a subclass with slots are not in __dict__
            if f.name != "data":
                object.__setattr__(clone, f.name, getattr(self, f.name))
        clone.data = data
        clone._metadata = dict(self._metadata)
        return clone
