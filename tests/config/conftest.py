"""A folder with a module of stages that a file may import, in which the test runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.stages.registry import REGISTERED

MODULE = """
import pyarrow as pa

from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.registry import register
from gristmill.tasks import DocumentBatch, EmptyTask


@register
class MakeTexts(ProcessingStage[EmptyTask, DocumentBatch]):
    def __init__(self, texts: list[str], copies: int = 1, ratio: float = 0.5, mode: "Mode" = None) -> None:
        if copies < 1:
            raise ValueError("copies must be at least 1.")
        self.texts, self.copies = texts, copies

    def process(self, task):
        return DocumentBatch(data=pa.table({"text": self.texts * self.copies}))


@register
class Twice(CompositeStage[DocumentBatch, DocumentBatch]):
    def decompose(self):
        return [Same().with_(name="first"), Same().with_(name="second")]


@register
class Same(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task):
        return task


class Unregistered(Same):
    pass


@register
class Options:
    def __init__(self, table: dict[str, int] | None = None) -> None:
        self.table = table
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "house_stages.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before, path = dict(REGISTERED), list(sys.path)
    yield tmp_path
    sys.modules.pop("house_stages", None)
    sys.path[:] = path
    for name in set(REGISTERED) - set(before):
        if REGISTERED[name].__module__ == "house_stages":
            del REGISTERED[name]
