"""The options that executors have in common, and checks of options."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import PipelineError
from gristmill.near_names import did_you_mean
from gristmill.sizes import parse_size

if TYPE_CHECKING:
    from gristmill.scheduling.profile import Profile


class ConfigError(PipelineError):
    """An option of an executor is not known or has a value that makes no sense."""


@dataclass(frozen=True)
class ExecutorConfig:
    """Options of an executor, with their defaults."""

    executor: ClassVar[str] = ""
    """The executor that has these options."""
    views: ClassVar[tuple[str, ...]] = ("auto", "live", "lines", "notebook", "off")

    ignore_failures: bool = False
    max_attempts: int = 3
    gpu_memory_gb: float | None = None
    """Memory of the smallest GPU, for stages that ask by memory; None measures it."""
    view: str = "auto"
    logging_interval: float = 60
    """Seconds between two lines of progress; the first comes after 5 s."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Self:
        """Check options given by the user. Raises `ConfigError`."""
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"config is a dict of options, not {options!r}")
        names = [f.name for f in fields(cls)]
        for name in options or {}:
            if name not in names:
                hint = did_you_mean(str(name), names, f"The options are: {', '.join(names)}.")
                raise ConfigError(f"{cls.executor} has no option {name!r}.{hint}")
        config = cls(**(options or {}))
        config._check()
        return config

    def _check(self) -> None:
        """Raise `ConfigError` if a value makes no sense."""
        choice("view", self.view, self.views)
        flag("ignore_failures", self.ignore_failures)
        number("logging_interval", self.logging_interval, above=0)
        if self.gpu_memory_gb is not None:
            number("gpu_memory_gb", self.gpu_memory_gb, above=0)
        _whole("max_attempts", self.max_attempts, 1)


@dataclass(frozen=True)
class EngineConfig(ExecutorConfig):
    """Options with their defaults.

    Sizes are bytes or text such as ``"8GB"`` or ``"512MB"``, in any case. Units are powers of 1024: "8GB" is "8GiB" and
    is the 8 of ``Resources(memory_gb=8)``.
    """

    execution_mode: str = "streaming"
    autoscale_interval_s: float = 30.0
    cpu_allocation_percentage: float = 1.0
    num_cpus: float | None = None
    num_gpus: int | None = None
    memory_limit: int | str | None = None
    object_store_memory: int | str | None = None
    task_timeout_s: float | None = None
    setup_timeout_s: float | None = 3600.0
    worker_max_lifetime_m: float | None = None
    worker_restart_interval_m: float = 1.0
    event_log: str | os.PathLike[str] | None = None
    profile: Profile | Mapping[str, Any] | str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Self:
        config = super().of(options)
        return config if config.profile is None else replace(config, profile=_profile(config.profile))

    def _check(self) -> None:
        super()._check()
        choice("execution_mode", self.execution_mode, ("streaming", "batch"))
        number("autoscale_interval_s", self.autoscale_interval_s, above=0)
        share("cpu_allocation_percentage", self.cpu_allocation_percentage)
        optional = {
            "num_cpus": self.num_cpus,
            "task_timeout_s": self.task_timeout_s,
            "setup_timeout_s": self.setup_timeout_s,
            "worker_max_lifetime_m": self.worker_max_lifetime_m,
        }
        for name, value in optional.items():
            if value is not None:
                number(name, value, above=0)
        number("worker_restart_interval_m", self.worker_restart_interval_m, least=0)
        if self.num_gpus is not None:
            _whole("num_gpus", self.num_gpus, 0)
        if self.event_log is not None and not isinstance(self.event_log, str | os.PathLike):
            raise ConfigError(f"event_log is the path of a file, not {self.event_log!r}")
        for name, limit in {"memory_limit": self.memory_limit, "object_store_memory": self.object_store_memory}.items():
            if limit is not None:
                size(name, limit)


def _profile(value: Any) -> Profile:
    from gristmill.scheduling.profile import Profile, ProfileError

    if not isinstance(value, Profile | Mapping | str | os.PathLike):
        raise ConfigError(f"profile is what `result.profile()` gives, a mapping or the path of a file, not {value!r}")
    try:
        return Profile.read(Path(value) if isinstance(value, os.PathLike) else value)
    except ProfileError as error:
        raise ConfigError(f"profile: {error}") from None


def size(name: str, value: int | float | str) -> int:
    """Bytes in a number or text such as ``"512MB"`` or ``"8 GiB"``, units of 1024. Raises `ConfigError`."""
    try:
        return parse_size(value)
    except ValueError:
        raise ConfigError(f'{name} is a number of bytes or text such as "8GB", not {value!r}') from None


def number(name: str, value: Any, *, above: float | None = None, least: float | None = None) -> None:
    """Raise `ConfigError` unless an option is a number within its limits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name} must be a number, not {value!r}")
    if above is not None and value <= above:
        raise ConfigError(f"{name} must be above {above:g}, not {value!r}")
    if least is not None and value < least:
        raise ConfigError(f"{name} must be at least {least:g}, not {value!r}")


def share(name: str, value: Any) -> None:
    """Raise `ConfigError` unless an option is a number above 0 and at most 1."""
    number(name, value, above=0)
    if value > 1:
        raise ConfigError(f"{name} is a share of 1, not {value!r}")


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {value!r}")


def choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, not {value!r}")


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is a whole number of at least {least}, not {value!r}")
