"""Profiles: service times, setups and fan-out that one run measures and the next one starts from.

A profile is plain JSON: ``{"stages": {"embed": {"service_s": 1.2, "setup_s": 45, "outputs_per_input": 1.0}}}``.
It need not be exact; a few measured tasks outweigh it. A stage may have ``settings``, which it found out for itself,
such as ``{"token_budget": 131072}``; it begins with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gristmill.scheduling.files import read_json
from gristmill.scheduling.records import StepRec
from gristmill.scheduling.settings import UNIT, Prior, StepSpec


class ProfileError(ValueError):
    """A profile cannot be read."""


@dataclass(frozen=True, slots=True)
class StageProfile:
    """One stage, or several that were fused to a step."""

    service_s: float
    """Worker time per task."""
    setup_s: float = 0.0
    outputs_per_input: float = 1.0
    settings: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        return plain if self.settings else {key: plain[key] for key in plain if key != "settings"}

    def prior(self) -> Prior:
        return Prior(
            max(1, round(self.service_s * UNIT)), round(self.setup_s * UNIT), round(self.outputs_per_input * UNIT)
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """Stages by name. A name that a pipeline does not have is ignored."""

    stages: Mapping[str, StageProfile]

    @classmethod
    def read(cls, source: Profile | Mapping[str, Any] | str | Path) -> Profile:
        """A profile from a mapping or a JSON file."""
        if isinstance(source, Profile):
            return source
        if isinstance(source, Mapping):
            return cls._of(source, "the profile")
        return cls._of(read_json(source, ProfileError), str(source))

    @classmethod
    def _of(cls, content: Any, where: str) -> Profile:
        stages = content.get("stages") if isinstance(content, Mapping) else None
        if not isinstance(stages, Mapping):
            raise ProfileError(f'{where} is not a profile: it must be an object with "stages"')
        return cls({str(name): _stage(entry, f"{where}: stage '{name}'") for name, entry in stages.items()})

    @classmethod
    def measured(cls, steps: Iterable[StepRec], found: Mapping[str, Mapping[str, int]] | None = None) -> Profile:
        """Return the measurements of a run and the settings that stages found out, by the name of the step."""
        found = found or {}
        return cls(
            {
                step.spec.name: StageProfile(
                    step.service.service_us() / UNIT,
                    max(0, step.setup.mean_us) / UNIT,
                    step.counts.outputs / step.counts.tasks_done,
                    found.get(step.spec.name, {}),
                )
                for step in steps
                if step.counts.tasks_done and step.service.samples
            }
        )

    def apply(self, steps: Iterable[StepSpec]) -> list[StepSpec]:
        """Return the steps with what the profile knows of them."""
        return [
            replace(step, prior=self.stages[step.name].prior()) if step.name in self.stages else step for step in steps
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"stages": {name: stage.to_dict() for name, stage in self.stages.items()}}

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")


def _stage(entry: Any, where: str) -> StageProfile:
    if not isinstance(entry, Mapping):
        raise ProfileError(f"{where} must be an object")
    values: dict[str, Any] = {"settings": _settings(entry.get("settings", {}), where)}
    for key, low in (("service_s", None), ("setup_s", 0.0), ("outputs_per_input", 1.0)):
        value = entry.get(key, low)
        if value is None:
            raise ProfileError(f"{where}: '{key}' is missing")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ProfileError(f"{where}: '{key}' must be a number of 0 or more, not {value!r}")
        values[key] = float(value)
    return StageProfile(**values)


def _settings(entry: Any, where: str) -> dict[str, int]:
    if not isinstance(entry, Mapping) or not all(type(value) is int for value in entry.values()):
        raise ProfileError(f"{where}: 'settings' must be an object of whole numbers, not {entry!r}")
    return {str(name): value for name, value in entry.items()}
