"""What the stages that write texts share: a model, the tasks that it computes together, and rows without a text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from gristmill.models.video.generation import BadPrompt
from gristmill.stages.core import NodeInfo, ProcessingStage, Result, WorkerMetadata
from gristmill.stages.resources import Resources
from gristmill.stages.video.rows import without_bad
from gristmill.tasks.video import VideoTask
from gristmill.videos.errors import BadVideo

TASKS = 8
"""Tasks that are computed together: one may have fewer clips than fill a batch."""
Answers = Sequence[str | BadPrompt]


class GenerationStage(ProcessingStage[VideoTask, VideoTask], builtin=True):
    """Asks a model some questions about each row, and makes columns of the answers.

    A row with a question that cannot be asked is reported as a bad record. A worker has a GPU; where there is none, it
    runs on CPUs.
    """

    accounts_for_documents = True
    batch_size = TASKS
    resources_without_gpu = Resources(cpus=1)
    loads = ("torch", "transformers")

    def begin(self, size: int, most_tokens: int, gpus: float, names: tuple[str, str]) -> None:
        """Set what subclasses are given by their users. ``names`` are those of the first two arguments."""
        for name, value in zip(names, (size, most_tokens), strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        self.resources = Resources(cpus=1, gpus=gpus)

    @abstractmethod
    def load(self, device: str, share: float) -> None:
        """Load the model."""

    @abstractmethod
    def fetch(self) -> None:
        """Download what is not on this machine yet."""

    @abstractmethod
    def questions(self, task: VideoTask) -> list[list[Any]]:
        """Return the questions about each row."""

    @abstractmethod
    def ask(self, questions: Sequence[Any]) -> Answers:
        """Return the answer to each question, or why there is none."""

    @abstractmethod
    def answered(self, task: VideoTask, rows: Sequence[Sequence[str]]) -> VideoTask:
        """Return the task with the answers to the questions about each row."""

    @abstractmethod
    def counted(self) -> dict[str, int]:
        """Return what happened since the last call, by name."""

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        import torch

        from gristmill.models.gpu_memory import limit_memory

        has_gpu = worker_metadata is not None and bool(worker_metadata.gpus) and torch.cuda.is_available()
        share = 1.0
        if has_gpu and worker_metadata is not None and 0 < worker_metadata.gpu_share < 1:
            share = worker_metadata.gpu_share
            limit_memory(share)
        self.load("cuda" if has_gpu else "cpu", share)

    def process(self, task: VideoTask) -> Result:
        return self.process_batch([task])[0]

    def process_batch(self, tasks: list[VideoTask]) -> list[Result]:
        asked = [self.questions(task) for task in tasks]
        answers = iter(self.ask([one for rows in asked for row in rows for one in row]))
        results: list[Result] = []
        for task, rows in zip(tasks, asked, strict=True):
            found = [[next(answers) for _ in row] for row in rows]
            bad = {row: reason for row, texts in enumerate(found) if (reason := _reason(texts)) is not None}
            left = [[str(text) for text in texts] for row, texts in enumerate(found) if row not in bad]
            made = self.answered(without_bad(task, bad), left)
            made.account.counters.update(self.counted())
            results.append(made)
        return results


def _reason(texts: Answers) -> BadVideo | None:
    return next((BadVideo(str(text)) for text in texts if isinstance(text, BadPrompt)), None)
