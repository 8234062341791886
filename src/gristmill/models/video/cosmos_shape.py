"""The sizes of a Cosmos-Embed1, by its configuration and the shapes of its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.errors import ModelError
from gristmill.models.weights import Shape

HEAD = 88
"""Numbers in a head of EVA-ViT-g: 1,408 numbers in 16 heads."""
QUERY_HEAD = 64
"""Numbers in a head of BERT."""
PATCH = "visual_encoder.patch_embed.proj.weight"
POSITION = "visual_encoder.pos_embed"
TIME = "temporal_encoding"
QUERIES = "query_tokens"
QFORMERS = ("qformer.bert.", "Qformer.bert.")
"""What the names of the Q-Former's weights begin with."""
TEMPORAL_PARAMETER = "temporal_parameter"
"""The encoding of time by one learned vector for each frame."""


@dataclass(frozen=True)
class CosmosShape:
    """The sizes of a Cosmos-Embed1. The defaults are those of the published ones with 336 x 336 pixels."""

    side: int = 336
    """Of a frame, in pixels."""
    frames: int = 8
    width: int = 768
    """Numbers in an embedding."""
    hidden: int = 1408
    heads: int = 16
    layers: int = 40
    inner: int = 6144
    patch: int = 14
    queries: int = 32
    query_hidden: int = 768
    query_heads: int = 12
    query_layers: int = 12
    query_inner: int = 3072
    cross: tuple[int, ...] = (0, 2, 4, 6, 8, 10)
    """The layers of the Q-Former that look at frames."""
    qformer: str = QFORMERS[0]


@dataclass(frozen=True)
class CosmosConfig:
    """What is in the configuration of a Cosmos-Embed1."""

    side: int
    frames: int
    width: int
    time: str

    @classmethod
    def of(cls, config: Mapping[str, Any], title: str) -> CosmosConfig:
        """Read a configuration, or raise a `ModelError`."""
        if config.get("model_type") != "cosmos-embed1":
            raise ModelError(
                f"{title} is of the architecture {config.get('model_type')!r}, not 'cosmos-embed1'.\n    name a "
                "checkpoint of Cosmos-Embed1, such as nvidia/Cosmos-Embed1-336p, or use ClipEmbeddingStage."
            )
        side = config.get("resolution", 224)
        if isinstance(side, list | tuple) and len(side) == 2 and side[0] == side[1]:
            side = side[0]
        numbers: dict[str, Any] = {
            "resolution": side,
            "num_video_frames": config.get("num_video_frames", 8),
            "embed_dim": config.get("embed_dim", 768),
        }
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModelError(f"{title}: {name} in config.json is {value!r}, not a whole number above 0.")
        time = str(config.get("temporal_encoding_type", "neighboring_token_propagation"))
        return cls(numbers["resolution"], numbers["num_video_frames"], numbers["embed_dim"], time)


def shape_of(config: CosmosConfig, weights: Mapping[str, Shape], title: str) -> CosmosShape:
    """Return the sizes of a checkpoint whose weights have our names, or raise a `ModelError`."""
    qformer = next((one for one in QFORMERS if f"{one}embeddings.LayerNorm.weight" in weights), None)
    missing = [name for name in (PATCH, POSITION, TIME, QUERIES) if name not in weights]
    if missing or qformer is None:
        first = missing[0] if missing else f"{QFORMERS[0]}embeddings.LayerNorm.weight"
        raise unknown(title, f"its weights have other names: {first} is not among them")
    hidden, _, patch, _ = weights[PATCH]
    side = round((weights[POSITION][1] - 1) ** 0.5) * patch
    if side != config.side // patch * patch:
        raise ModelError(
            f"{title}: its weights are for frames of {side} x {side} pixels, and config.json has a resolution of "
            f"{config.side}.\n    get the config.json that belongs to the weights."
        )
    queries, query_hidden = weights[QUERIES][-2:]
    cross = _numbers(weights, rf"{re.escape(qformer)}encoder\.layer\.(\d+)\.crossattention\.self\.query\.weight")
    return CosmosShape(
        side=side,
        frames=config.frames,
        width=config.width,
        hidden=hidden,
        heads=max(1, hidden // HEAD),
        layers=len(_numbers(weights, r"visual_encoder\.blocks\.(\d+)\.attn\.qkv\.weight")),
        inner=weights.get("visual_encoder.blocks.0.mlp.fc1.weight", (0,))[0],
        patch=patch,
        queries=queries,
        query_hidden=query_hidden,
        query_heads=max(1, query_hidden // QUERY_HEAD),
        query_layers=len(
            _numbers(weights, rf"{re.escape(qformer)}encoder\.layer\.(\d+)\.attention\.self\.query\.weight")
        ),
        query_inner=weights.get(f"{qformer}encoder.layer.0.intermediate_query.dense.weight", (0,))[0],
        cross=tuple(cross),
        qformer=qformer,
    )


def unknown(title: str, reason: str) -> ModelError:
    """The error for a checkpoint that our network cannot compute."""
    return ModelError(
        f"{title} cannot be computed by gristmill's own network: {reason}.\n    set trust_remote_code=True, which runs "
        "the Python code in the checkpoint, if you trust it."
    )


def _numbers(weights: Mapping[str, Shape], pattern: str) -> list[int]:
    found = (re.fullmatch(pattern, name) for name in weights)
    return sorted({int(one[1]) for one in found if one is not None})
