"""The options of ``gristmill plan``."""

from __future__ import annotations

import argparse
import math
import re

from gristmill.sizes import WANTED, parse_size

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|m|h|d|)", re.IGNORECASE)


def is_capacity_plan(args: argparse.Namespace) -> bool:
    """Return whether any option asks for a forecast of the job."""
    job = (args.data, args.nodes, args.gpu, args.cpu_speed, args.deadline, args.json, args.profile, args.save_profile)
    sample = (args.sample, args.sample_documents, args.sample_seconds, args.cpus, args.gpus, args.memory_limit)
    return any(value not in (None, False) for value in (*job, *sample))


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("the job")
    job.add_argument("--data", metavar="PATH", help="other input than the pipeline's: a file or folder")
    job.add_argument(
        "--nodes",
        metavar="NODES",
        help="8x48c8g: 8 nodes of 48 CPUs and 8 GPUs; 8x48c8g256gb with 256 GB of memory each (default: this machine)",
    )
    job.add_argument("--gpu", metavar="KIND", help="kind of the GPUs, such as h100 (default: the same as measured)")
    job.add_argument(
        "--cpu-speed",
        type=_number,
        metavar="F",
        help="how fast the CPUs of the nodes are, relative to the measured ones",
    )
    job.add_argument("--deadline", type=_duration, metavar="TIME", help="find the smallest cluster for this: 6h, 90min")
    sample = parser.add_argument_group("the measurements")
    sample.add_argument("--sample", type=_fraction, metavar="F", help="run this part of the input (default: 0.05)")
    sample.add_argument("--sample-documents", type=_count, metavar="N", help="of that at most N (default: 50000)")
    sample.add_argument("--sample-seconds", type=_number, metavar="S", help="about so long at most (default: 120)")
    sample.add_argument("--cpus", type=_number, metavar="N", help="CPUs for the sample (default: those of the machine)")
    sample.add_argument(
        "--gpus", type=_natural, metavar="N", help="GPUs for the sample; more than there are are logical"
    )
    sample.add_argument("--memory-limit", type=_size, metavar="SIZE", help="memory for the sample, such as 8GB")
    sample.add_argument(
        "--profile",
        metavar="FILE",
        help="run no sample: measurements of --save-profile, or 'auto' for the profile store",
    )
    sample.add_argument("--save-profile", metavar="FILE", help="write the measurements, for --profile")
    sample.add_argument("--no-profile-store", action="store_true", help="keep the sample out of the profile store")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _fraction(text: str) -> float:
    try:
        value = _number(text)
    except argparse.ArgumentTypeError:
        value = math.inf
    if value > 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a fraction; write a number above 0 and up to 1, such as 0.05"
        )
    return value


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {WANTED}") from None


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2].lower()] if match else 0.0
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 90s, 30min, 6h or 2d")
    return seconds
