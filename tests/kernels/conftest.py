"""Makes `text_reference` and `text_samples` importable by the tests beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
