import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["numpy", "torch"])
def compute(request):
    """The implementations: NumPy, and the code that runs on GPUs, on a CPU."""
    if request.param == "numpy":
        from gristmill.stages.deduplication.semantic.arithmetic_numpy import NumpyArithmetic

        return NumpyArithmetic()
    pytest.importorskip("torch", reason="the arithmetic of GPUs needs torch")
    from gristmill.stages.deduplication.semantic.arithmetic_torch import TorchArithmetic

    return TorchArithmetic("cpu")
