"""The logger of gristmill.

Messages are printed to standard error as ``gristmill: ...`` lines. Standard logging silences or redirects them:

    logging.getLogger("gristmill").setLevel(logging.CRITICAL)
    logging.getLogger("gristmill").handlers = [logging.FileHandler("run.log")]
"""

from __future__ import annotations

import logging
import sys

from gristmill.secrets import without_secrets


class StderrHandler(logging.Handler):
    """Print to `sys.stderr` as it is at that moment: the live view, notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if sys.stderr is not None:  # a program without a console has none
                print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # closed
            self.handleError(record)


def _hide_secrets(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_secrets(record.getMessage()), ()
    return True


logger = logging.getLogger("gristmill")
if not logger.handlers:
    _handler = StderrHandler()
    _handler.setFormatter(logging.Formatter("gristmill: %(message)s"))
    logger.addHandler(_handler)
    logger.propagate = False  # handlers of the root logger would print each message a second time
if logger.level == logging.NOTSET:
    logger.setLevel(logging.INFO)
logger.addFilter(_hide_secrets)
