"""The unit that flows between stages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from gristmill.tasks.account import Account

T = TypeVar("T")


@dataclass
class Task(Generic[T]):
    """One batch of data with a stable id.

    A subclass need define nothing. It may narrow ``data``, add fields with defaults, say how many items it holds
    (``num_items``) and how it is split (``slice``).

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
    _account: Account | None = field(default=None, init=False, repr=False, compare=False)

    named: ClassVar[bool] = False
    """Whether the task keeps the id that it was made with, instead of its place among the initial tasks."""
    _transient: ClassVar[tuple[str, ...]] = ("_account",)
    """Fields that stay in the worker: they are neither copied nor pickled."""

    @property
    def account(self) -> Account:
        """The report of the stage that returns this task about documents. The engine takes it from the task."""
        if self._account is None:
            self._account = Account()
        return self._account

    @account.setter
    def account(self, account: Account | None) -> None:
        self._account = account

    def take_account(self) -> Account | None:
        """Return the account and remove it from the task; None if there is none."""
        account, self._account = self._account, None
        return account

    @property
    def num_items(self) -> int:
        """How many records the task stands for in accounts and rates."""
        return 1

    def validate(self) -> bool:
        """Whether the data is fit to be processed."""
        return True

    def slice(self, start: int, stop: int) -> Self | None:
        """A task of the items ``start`` up to ``stop``, with the same id; None if the task cannot be split.

        The engine splits a failing task in halves to find the item at fault. Slices that cover all items must hold
        all the data, each item once.
        """
        return None

    def _with_data(self, data: T) -> Self:
        """A shallow copy that holds ``data``; the metadata is a dict of its own."""
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        for f in dataclasses.fields(self):  # those of a subclass with slots are not in its dict
            if f.name in self._transient:
                object.__setattr__(clone, f.name, None)
            elif f.name != "data":
                object.__setattr__(clone, f.name, getattr(self, f.name))
        clone.data = data
        clone._metadata = dict(self._metadata)
        return clone


@dataclass
class EmptyTask(Task[None]):
    """No data: what the first stage gets when a pipeline runs without ``initial_tasks``."""

    data: None = None

    @property
    def num_items(self) -> int:
        return 0
