"""The problems of a pipeline file, collected so that one error shows all of them."""

from __future__ import annotations

from gristmill.errors import PipelineFileError

MOST_SHOWN = 20


class Problems:
    """Messages, each with its place. `check` raises if there are any."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, where: str, text: str) -> None:
        line = f"{where}: {text}"
        if line not in self.lines:
            self.lines.append(line)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def check(self) -> None:
        if self.lines:
            more = [f"and {len(self.lines) - MOST_SHOWN} more"] if len(self.lines) > MOST_SHOWN else []
            raise PipelineFileError("\n".join(self.lines[:MOST_SHOWN] + more))
