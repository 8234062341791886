"""``python -m gristmill`` is the command ``gristmill``."""

from __future__ import annotations

import sys

from gristmill.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
