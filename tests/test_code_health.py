"""The figures of the code's health do not rise above their limits."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "code_health.py"


def test_no_figure_is_above_its_limit():
    run = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
