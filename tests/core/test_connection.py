"""Ctrl-C while Ray connects, and the errors if it cannot connect."""

from __future__ import annotations

import signal

import pytest

from gristmill.core.connection import import_ray, last_line, late_interrupt
from gristmill.errors import PipelineError


def test_an_interrupt_takes_effect_when_the_connection_is_there():
    done = []
    with pytest.raises(KeyboardInterrupt), late_interrupt():
        signal.raise_signal(signal.SIGINT)
        done.append("connected")
    assert done == ["connected"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_takes_effect_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt), late_interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("connected")
    assert not done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_takes_precedence_over_the_interrupt():
    with pytest.raises(ConnectionError), late_interrupt():
        signal.raise_signal(signal.SIGINT)
        raise ConnectionError


def test_a_part_of_ray_that_cannot_be_imported_is_named():
    pytest.importorskip("ray")
    with pytest.raises(PipelineError, match=r"RayDataExecutor needs Ray .*pip install 'gristmill\[ray-data\]'"):
        import_ray("RayDataExecutor", "ray-data", "ray.no_such_part")


def test_only_the_error_of_a_traceback_of_another_process_is_shown():
    error = ConnectionAbortedError("failure:\nTraceback (most recent call last):\n  File ...\nOSError: no port\n\n")
    assert last_line(error) == "OSError: no port"
    assert last_line(ConnectionAbortedError()) == "ConnectionAbortedError"
