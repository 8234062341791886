"""Makes `text_reference`, `text_samples` and the scripts importable by the tests beside them."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "scripts")]
