"""Models of videos of the true size with random weights, made on the device, and the films that they see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.models.video.cosmos_shape import CosmosShape
from gristmill.models.video.generation import load_tokenizer
from gristmill.models.vision.rows import RowModel
from gristmill.stages.video.caption import CaptionGenerationStage
from gristmill.stages.video.embedding import CosmosEmbed1EmbeddingStage

MARKS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_7B: dict[str, Any] = dict(
    text=dict(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        vocab_size=152064,
        mrope=[16, 24, 24],
    ),
    vision=dict(
        depth=32,
        hidden_size=1280,
        intermediate_size=3420,
        num_heads=16,
        out_hidden_size=3584,
        patch_size=14,
        window_size=112,
        fullatt_block_indexes=[7, 15, 23, 31],
    ),
)
"""The shape of Qwen2.5-VL-7B."""
QWEN_TINY: dict[str, Any] = dict(
    text=dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        vocab_size=512,
        mrope=[1, 1, 2],
    ),
    vision=dict(
        depth=2,
        hidden_size=32,
        intermediate_size=48,
        num_heads=2,
        out_hidden_size=32,
        patch_size=14,
        window_size=56,
        fullatt_block_indexes=[1],
    ),
)
COSMOS_TINY: dict[str, Any] = dict(
    side=28, width=24, hidden=176, heads=2, layers=2, inner=200, queries=4, query_hidden=128, query_heads=2
)
COSMOS_TINY |= dict(query_layers=2, query_inner=96, cross=(0,))


class RandomCosmos(CosmosEmbed1EmbeddingStage, builtin=True):
    """Cosmos-Embed1 with random weights."""

    def check_needs(self) -> None:
        """There are no weights to check."""

    def load(self, device: str) -> RowModel:
        import torch

        from gristmill.models.video.cosmos_embed1 import preprocessing
        from gristmill.models.video.cosmos_network import CosmosEmbed1
        from gristmill.models.vision.loading import finished

        told = json.loads(Path(self.checkpoint, "shape.json").read_text())
        shape = CosmosShape(**{**told, "cross": tuple(told["cross"])}) if told else CosmosShape()
        torch.manual_seed(0)
        with torch.device(device):
            module = CosmosEmbed1(shape, preprocessing(shape))
        dtype = torch.bfloat16 if device != "cpu" else torch.float32
        place = torch.device(device)
        return finished(module, self.spec.checkpoint, place, dtype, self.torch_compile, self.spec.item, shape.width)


class RandomCaptions(CaptionGenerationStage, builtin=True):
    """A captioner with random weights. Its captions are nonsense, as long as allowed."""

    def check_needs(self) -> None:
        """There are no weights to check."""

    def load(self, device: str, share: float) -> None:
        import torch
        import transformers

        from gristmill.models.video.captioner import QwenCaptioner

        folder = self.spec.checkpoint.folder()
        config: Any = transformers.AutoConfig.from_pretrained(folder)
        torch.manual_seed(0)
        dtype = torch.bfloat16 if device != "cpu" else torch.float32
        with torch.device(device):
            model: Any = transformers.AutoModelForImageTextToText.from_config(
                config, dtype=dtype, attn_implementation="sdpa"
            )
        tokenizer = load_tokenizer(self.spec.checkpoint)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        self._captioner = QwenCaptioner(model.eval().requires_grad_(False), tokenizer, self.spec)


def make_folders(work: Path, is_tiny: bool) -> None:
    """Write the configurations of the models, and a tokenizer."""
    import transformers

    cosmos = work / "cosmos"
    cosmos.mkdir(parents=True, exist_ok=True)
    shape = COSMOS_TINY if is_tiny else {}
    (cosmos / "shape.json").write_text(json.dumps(shape))
    made = CosmosShape(**shape)
    config = {"model_type": "cosmos-embed1", "resolution": made.side, "embed_dim": made.width}
    (cosmos / "config.json").write_text(json.dumps(config))
    ids = _tokenizer(work / "qwen")
    sizes = QWEN_TINY if is_tiny else QWEN_7B
    text = dict(sizes["text"])
    rope = {"rope_type": "default", "type": "default", "mrope_section": text.pop("mrope"), "rope_theta": 1e6}
    transformers.Qwen2_5_VLConfig(
        text_config=dict(text, rope_parameters=rope, rope_scaling=rope, bos_token_id=None, eos_token_id=None),
        vision_config=sizes["vision"],
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    ).save_pretrained(work / "qwen")


def _tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"vocab_size": 300, "initial_alphabet": alphabet, "show_progress": False}
    made.train_from_iterator(["describe the video in detail"], trainers.BpeTrainer(**options))
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|pad|>", additional_special_tokens=MARKS
    )
    found.save_pretrained(str(folder))
    return dict(zip(MARKS, found.convert_tokens_to_ids(MARKS), strict=True))


def make_video(path: Path, seed: int, seconds: float, height: int, width: int, fps: int) -> int:
    """Encode shots of 5 to 11 s in which the camera moves over a texture. Return how many shots there are."""
    import av

    draw = np.random.default_rng(seed)
    left = int(seconds * fps)
    shots = 0
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream("libx264", rate=fps)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = {"preset": "ultrafast"}
        while left > 0:
            count = min(left, int(draw.uniform(5, 11) * fps))
            count = left if left - count < 3 * fps else count
            small = draw.integers(0, 256, (height // 8 + 2, (width + 3 * count) // 8 + 2, 3), dtype=np.uint8)
            wide = small.repeat(8, axis=0).repeat(8, axis=1)
            speed = draw.uniform(0.5, 3)
            for number in range(count):
                first = int(number * speed)
                pixels = np.ascontiguousarray(wide[:height, first : first + width])
                output.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            left -= count
            shots += 1
        output.mux(stream.encode())
    return shots
