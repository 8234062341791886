"""Packed trunks on a GPU against transformers in float32, and memory limits. They run where there is a GPU.

PYTHONPATH=src python -m pytest tests/models/test_gpu.py
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gristmill.models.tokens import TokenLists

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

import transformers  # noqa: E402

from gristmill.models.engine import InferenceEngine  # noqa: E402
from gristmill.models.model import Head, Model, Trunk  # noqa: E402
from gristmill.models.trunks.bert import BertTrunk  # noqa: E402
from gristmill.models.trunks.deberta import DebertaTrunk  # noqa: E402
from gristmill.models.trunks.llama import LlamaTrunk  # noqa: E402

DEVICE = torch.device("cuda")
VOCABULARY = 1000
TOLERANCE = {torch.float16: 0.02, torch.bfloat16: 0.15}
"""The largest difference of a last hidden state, which are about 4 at most."""
SEED = random.SystemRandom().randrange(1 << 32)

BERT = {"vocab_size": VOCABULARY, "num_hidden_layers": 3, "intermediate_size": 512}
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 512, "num_hidden_layers": 3, "intermediate_size": 1024}


def deberta(heads: int, dim: int, buckets: int, longest: int) -> Any:
    config = transformers.DebertaV2Config(
        vocab_size=VOCABULARY, hidden_size=heads * dim, num_attention_heads=heads, num_hidden_layers=3,
        intermediate_size=256, max_position_embeddings=longest, relative_attention=True, position_buckets=buckets,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
        type_vocab_size=0, attn_implementation="eager",
    )  # fmt: skip
    return transformers.DebertaV2Model(config)


MODELS: dict[str, tuple[Callable[[], Any], type[Trunk]]] = {
    "deberta-v3-base": (lambda: deberta(12, 64, 256, 512), DebertaTrunk),
    "deberta, short": (lambda: deberta(4, 32, 128, 512), DebertaTrunk),
    "deberta, long": (lambda: deberta(6, 64, 256, 1500), DebertaTrunk),
    "minilm": (lambda: bert(hidden_size=384, num_attention_heads=12), BertTrunk),
    "bert": (lambda: bert(hidden_size=768, num_attention_heads=12), BertTrunk),
    "roberta": (
        lambda: transformers.RobertaModel(
            transformers.RobertaConfig(
                **BERT, hidden_size=256, num_attention_heads=4, max_position_embeddings=1026, pad_token_id=1
            )
        ),
        BertTrunk,
    ),
    "llama": (lambda: llama(8), LlamaTrunk),
    "llama, shared keys": (lambda: llama(2), LlamaTrunk),
}


def bert(**changes: Any) -> Any:
    return transformers.BertModel(transformers.BertConfig(**BERT, max_position_embeddings=1024, **changes))


def llama(key_heads: int) -> Any:
    config = transformers.LlamaConfig(
        **LLAMA, num_attention_heads=8, num_key_value_heads=key_heads, max_position_embeddings=2048
    )
    return transformers.LlamaModel(config)


def texts(longest: int, count: int = 40) -> TokenLists:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    lengths = [1, 63, 64, 65, 128, longest, *rng.integers(1, longest, count).tolist()]
    return TokenLists.from_lists([rng.integers(5, VOCABULARY, n).tolist() for n in lengths])


def states(model: Any, tokens: TokenLists, before: tuple[int, ...] = ()) -> list[Any]:
    """The states of each text by itself, in float32."""
    found = []
    with torch.inference_mode():
        for part in np.split(tokens.ids, tokens.offsets[1:-1]):
            ids = torch.tensor([[*before, *part.tolist()]], device=DEVICE)
            found.append(model(input_ids=ids).last_hidden_state[0, len(before) :].float())
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_of_transformers(name: str, dtype: Any) -> None:
    make, trunk_class = MODELS[name]
    tokens = texts(1000 if "long" in name else 500)
    model = make().eval().to(DEVICE)
    want = states(model, tokens)
    trunk = trunk_class(model.config.to_dict(), model.state_dict(), DEVICE, dtype)  # type: ignore[call-arg]
    with torch.inference_mode():
        for reads, rows in (
            ("all", torch.cat(want)),
            ("first", torch.stack([one[0] for one in want])),
            ("last", torch.stack([one[-1] for one in want])),
        ):
            error = (trunk.hidden(tokens, reads).float() - rows).abs().max().item()
            print(name, dtype, reads, f"{error:.4f}")
            assert error < TOLERANCE[dtype]


def test_a_prefix_is_computed_once_and_changes_nothing() -> None:
    tokens = texts(300)
    model = llama(2).eval().to(DEVICE)
    before = tuple(np.random.default_rng(SEED).integers(5, VOCABULARY, 100).tolist())
    want = torch.stack([one[-1] for one in states(model, tokens, before)])
    prefix = TokenLists.from_lists([before])
    trunk = LlamaTrunk(model.config.to_dict(), model.state_dict(), DEVICE, torch.float16, prefix)
    with torch.inference_mode():
        got = trunk.hidden(tokens, "last").float()
    assert (got - want).abs().max().item() < TOLERANCE[torch.float16]


class First(Head):
    reads = "first"

    def __init__(self, width: int) -> None:
        self.width = width

    def to(self, device: Any, dtype: Any) -> First:
        return self

    def rows(self, hidden: Any, offsets: Any) -> Any:
        return hidden.float()


def test_any_budget_gives_the_same_rows_and_one_budget_the_same_bits() -> None:
    tokens = texts(500, 200)
    model = deberta(12, 64, 256, 512).eval()
    trunk = DebertaTrunk(model.config.to_dict(), model.state_dict(), DEVICE, torch.float16)
    rows = [InferenceEngine(Model(trunk, First(768)), token_budget=n).run(tokens) for n in (600, 5000, 100_000)]
    again = InferenceEngine(Model(trunk, First(768)), token_budget=5000).run(tokens)
    np.testing.assert_array_equal(rows[1], again)
    for other in (rows[0], rows[2]):
        np.testing.assert_allclose(rows[1], other, atol=TOLERANCE[torch.float16])


SMALL_MEMORY = """
import torch, numpy as np
from gristmill.models.gpu_memory import limit_memory
from tests.models.test_gpu import DEVICE, First, deberta, texts
from gristmill.models.engine import OUT_OF_MEMORY, InferenceEngine, without_waiting
from gristmill.models.model import Model
from gristmill.models.trunks.deberta import DebertaTrunk
total = torch.cuda.get_device_properties(0).total_memory
tokens = texts(500, 2000)
model = deberta(12, 64, 256, 512).eval()
trunk = DebertaTrunk(model.config.to_dict(), model.state_dict(), DEVICE, torch.float16)
free = InferenceEngine(Model(trunk, First(768)), token_budget=1 << 20).run(tokens)
torch.cuda.empty_cache()
limit_memory(2.0 * 2**30 / total)
engine = InferenceEngine(Model(trunk, First(768)), token_budget=1 << 20)
task = engine.begin()
tight = without_waiting(task.run(tokens))
print(task.notes, task.counters, np.abs(free - tight).max(), flush=True)
assert task.counters[OUT_OF_MEMORY] >= 1
assert np.abs(free - tight).max() < 0.02
assert torch.cuda.max_memory_reserved() > 0
import pynvml, os
pynvml.nvmlInit()
held = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used
print("held", held / 2**30)
"""


def test_a_run_out_of_memory_ends_with_smaller_batches_and_the_same_rows() -> None:
    done = subprocess.run([sys.executable, "-c", SMALL_MEMORY], env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
