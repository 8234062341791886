"""Hints for wrong usage: the command or option that was probably meant. Only an error imports this."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gristmill.near_names import did_you_mean

_OPTION = re.compile(r"--[a-z][a-z-]*")


def unknown_command(name: str, commands: Iterable[str]) -> str:
    """Return the message for a command that does not exist."""
    hint = did_you_mean(name, commands, f"There are: {', '.join(commands)}")
    return f"there is no command {name!r}.{hint.removesuffix('?')}"


def unknown_arguments(unknown: Sequence[str], help_text: str) -> str:
    """Return the message for arguments that are not in the help of a command."""
    name = unknown[0].partition("=")[0]
    options = dict.fromkeys(_OPTION.findall(help_text))
    hint = did_you_mean(name, options) if name.startswith("--") else ""
    return f"unrecognized arguments: {' '.join(unknown)}{f'.{hint}'.removesuffix('?') if hint else ''}"
