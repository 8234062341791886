"""Small embedding models with random weights, as sentence-transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models import small


def save_encoder(kind: str, folder: Path, seed: int) -> None:
    """Save the layers and the tokenizer of an architecture with random weights."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoModel

    which, shape = small.ARCHITECTURES[kind]
    tokenizer = small.tokenizer_of(which, folder)
    config = AutoConfig.for_model(
        kind,
        **{"vocab_size": len(tokenizer), "max_position_embeddings": small.POSITIONS, **shape},
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(str(folder))


def save_embedder(folder: Path, seed: int, *, kind: str = "bert", pooling: Any = "mean", **options: Any) -> Any:
    """Save an embedding model and return it. ``after`` are modules after pooling, by their makers.

    Other options are those of SentenceTransformer, and ``max_seq_length`` and ``include_prompt``.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    save_encoder(kind, folder / "encoder", seed)
    transformer = Transformer(str(folder / "encoder"), max_seq_length=options.pop("max_seq_length", None))
    width = transformer.get_embedding_dimension()
    pooled = Pooling(width, pooling_mode=pooling, include_prompt=options.pop("include_prompt", True))
    torch.manual_seed(seed)
    after = [make() for make in options.pop("after", ())]
    model = SentenceTransformer(modules=[transformer, pooled, *after], device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return SentenceTransformer(str(folder), device="cpu")
