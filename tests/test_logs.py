"""The gristmill logger: its lines on standard error, and how users silence or redirect it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from gristmill.logs import logger


def test_messages_are_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logger.info("compiling %s", "kernels")
    assert capsys.readouterr() == ("", "gristmill: compiling kernels\n")


def test_secrets_in_urls_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    logger.warning("cannot read %s", "s3://user:topsecret@bucket/x")
    assert "topsecret" not in capsys.readouterr().err


def test_a_level_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        logger.warning("not shown")
    finally:
        logger.setLevel(level)
    assert capsys.readouterr().err == ""


def test_a_program_that_configured_the_logger_before_keeps_its_handlers() -> None:
    program = (
        "import logging, sys; logger = logging.getLogger('gristmill'); logger.setLevel(logging.ERROR);"
        "logger.addHandler(logging.StreamHandler(sys.stdout)); from gristmill.logs import logger as ours;"
        "ours.warning('w'); ours.error('e')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("e\n", "")
