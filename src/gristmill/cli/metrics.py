"""``gristmill metrics``: Prometheus and Grafana for runs, and the options of ``gristmill run`` for metrics."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from gristmill.metrics.stack_files import StackFiles
    from gristmill.pipeline.monitoring import MetricsOptions

OK, FAILED = 0, 1


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to 65535")
    return int(text)


def add_run_options(run: argparse.ArgumentParser) -> None:
    """Add the options of ``gristmill run``."""
    run.add_argument(
        "--metrics-port", type=_port, metavar="PORT", help="serve metrics for Prometheus at this port; 0: any free one"
    )
    run.add_argument(
        "--metrics-host", metavar="HOST", help="the address to serve them at (default: 127.0.0.1, this machine only)"
    )


def options_of(args: argparse.Namespace) -> MetricsOptions | None:
    """Return where ``gristmill run`` serves metrics."""
    from gristmill.cli.target import UsageError
    from gristmill.pipeline.monitoring import LOOPBACK, MetricsOptions

    if args.metrics_port is None:
        if args.metrics_host is not None:
            raise UsageError("--metrics-host needs --metrics-port, which switches metrics on")
        return None
    return MetricsOptions(args.metrics_port, args.metrics_host or LOOPBACK)


def add_command(commands: Any) -> None:
    """Add ``gristmill metrics``."""
    metrics = commands.add_parser(
        "metrics",
        help="start Prometheus and Grafana for runs with --metrics-port",
        description="Monitor runs with Prometheus and Grafana.",
    )
    actions = metrics.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser(
        "up",
        help="write their configuration and start those that are installed",
        description="Write the configuration of Prometheus and Grafana, start those that are installed, at 127.0.0.1, "
        "and stop them on Ctrl-C. They find the runs of this machine that have --metrics-port by themselves.",
    )
    up.add_argument("--dir", metavar="DIR", help="where their files and data are (default: among your state files)")
    up.add_argument("--no-start", action="store_true", help="only write the files")
    write = actions.add_parser(
        "write",
        help="only write their configuration, alert rules and dashboard",
        description="Write the configuration of Prometheus and Grafana, alert rules and a dashboard into a folder.",
    )
    write.add_argument("dir", metavar="DIR")
    for action in (up, write):
        action.add_argument("--port", type=_port, default=9090, metavar="PORT", help="of Prometheus (default: 9090)")
        action.add_argument("--grafana-port", type=_port, default=3000, metavar="PORT", help="(default: 3000)")
        action.add_argument(
            "--runs",
            metavar="DIR",
            help="where runs leave their addresses (default: GRISTMILL_METRICS_DIR, or among your state files)",
        )


def metrics(args: argparse.Namespace) -> int:
    """Run ``gristmill metrics``."""
    from gristmill.errors import PipelineError
    from gristmill.metrics.discovery import discovery_folder, state_folder
    from gristmill.metrics.stack_files import StackFiles

    folder = Path(args.dir).expanduser().absolute() if args.dir else state_folder() / "servers"
    stack = StackFiles(folder, discovery_folder(args.runs), args.port, args.grafana_port)
    try:
        for path in stack.write():
            print(f"wrote {path}", flush=True)
        if args.action == "write" or args.no_start:
            return OK
        return _up(stack)
    except PipelineError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        return FAILED


def _up(stack: StackFiles) -> int:
    """Start the servers that are installed, and wait for Ctrl-C."""
    from gristmill.metrics.servers import RunningServers, server_plans

    plans = server_plans(stack)
    installed = [plan for plan in plans if plan.command]
    for plan in plans:
        if not plan.command:
            print(f"{plan.name} is not installed: {plan.install}", flush=True)
    if not installed:
        print("gristmill: neither Prometheus nor Grafana is installed: nothing was started", file=sys.stderr)
        return FAILED
    servers = RunningServers(stack)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        servers.start(installed)
        for plan in installed:
            print(f"{plan.name} is at http://127.0.0.1:{plan.port}", flush=True)
        print("watching runs with --metrics-port; Ctrl-C stops the servers", flush=True)
        servers.watch()
    except KeyboardInterrupt:
        print("stopping", flush=True)
        return OK
    finally:
        servers.stop()
        signal.signal(signal.SIGTERM, before)


def _interrupt(signum: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
