"""The relative positions of DeBERTa on GPUs against those of transformers, for texts of any length."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from gristmill.models.trunks.relative import ALIGNED, PositionTables


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (128, 512), (256, 1500)])
def test_rows_are_those_of_transformers_for_texts_of_any_length(buckets: int, most: int) -> None:
    """Texts of more tokens than ``max_position_embeddings`` too: NVIDIA's classifier of quality reads 1,024 of 512."""
    seed = random.randrange(2**31)
    print("seed", seed)
    tables = PositionTables(buckets, most, torch.device("cpu"))
    for longest in (1, 511, 512, 513, 1024, *random.Random(seed).sample(range(2, 3000), 4)):
        nothing = torch.empty(1, longest, 1)
        distances = build_relative_position(nothing, nothing, buckets, most).reshape(longest, longest)
        expected = (distances + buckets).clamp(0, 2 * buckets - 1)

        window = tables.window(longest)

        assert window.rows[window.origin : window.origin + longest].tolist() == expected[:, 0].tolist()
        assert window.rows[window.origin - longest + 1 : window.origin + 1].flip(0).tolist() == expected[0].tolist()
        assert window.low <= int(expected.min())
        assert int(expected.max()) < window.low + window.width
        assert window.low % ALIGNED == window.width % ALIGNED == 0
        assert window.low + window.width <= 2 * buckets
