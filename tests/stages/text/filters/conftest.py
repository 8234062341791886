"""Makes `text_reference` and `text_samples` of the kernels' tests importable here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "kernels"))
