"""A parser of command lines. It reports wrong usage in one line, with the name that was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gristmill.near_names import did_you_mean

USAGE = 2
_OPTION = re.compile(r"--[a-z][a-z-]*")


class Parser(argparse.ArgumentParser):
    """A parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"gristmill: {message}; see '{self.prog} --help'\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End the process because of arguments that this command does not have."""
        name = unknown[0].partition("=")[0]
        options = dict.fromkeys(_OPTION.findall(self.format_help()))
        hint = did_you_mean(name, options) if name.startswith("--") else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{f'.{hint}'.removesuffix('?') if hint else ''}")


def parse(parser: Parser, commands: Mapping[str, Parser], argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. End the process if it is wrong."""
    given = sys.argv[1:] if argv is None else argv
    if given and not given[0].startswith("-") and given[0] not in commands:
        hint = did_you_mean(given[0], commands, f"There are: {', '.join(commands)}")
        parser.error(f"there is no command {given[0]!r}.{hint.removesuffix('?')}")
    args, unknown = parser.parse_known_args(given)
    if unknown:
        commands[args.command].refuse(unknown)
    return args
