"""Texts for the text model of CLIP or SigLIP: its shape, its tokens, and how it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import Precision, Tensors
from gristmill.models.tokenizer import ModelTokenizer, ReadLimits, Truncation, load_tokenizer
from gristmill.models.vision.architectures import ACTIVATIONS, Kind, kind_of, tower_config, vit_shape
from gristmill.models.vision.loading import dtype_of, finished, has_text_tower, require_torch
from gristmill.models.vision.rows import RowModel

if TYPE_CHECKING:
    import torch

DEFAULTS: dict[str, dict[str, Any]] = {
    "clip": {
        **{"vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12},
        **{"num_attention_heads": 8, "max_position_embeddings": 77, "eos_token_id": 49407},
        **{"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    },
    "siglip": {
        **{"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"num_attention_heads": 12, "max_position_embeddings": 64, "eos_token_id": 1},
        **{"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
    },
}
"""What a configuration means that does not name these."""
EMBEDDING = "text_model.embeddings.token_embedding.weight"


@dataclass(frozen=True)
class TextShape:
    """The sizes of a text model."""

    kind: Kind
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    length: int
    """Tokens of each text, after cutting or filling up."""
    activation: str
    epsilon: float
    width: int
    end: int
    """The id of the token at the end of a text."""


@dataclass(frozen=True)
class TextSpec:
    """Which text model to load: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    precision: Precision = "auto"
    compiled: bool = True

    @cached_property
    def shape(self) -> TextShape:
        """The shape of the text model of the checkpoint."""
        kind = kind_of(self.checkpoint)
        if kind not in DEFAULTS or not has_text_tower(self.checkpoint):
            raise ModelError(
                f"{self.checkpoint.title} has no text model: it is of the architecture "
                f"{self.checkpoint.config.get('model_type')!r}.\n    name a checkpoint of CLIP or SigLIP with both."
            )
        config = DEFAULTS[kind] | tower_config(self.checkpoint, "text_config")
        image = vit_shape(self.checkpoint)
        if config["hidden_act"] not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ModelError(f"{self.checkpoint.title}: the activation {config['hidden_act']!r} is not one of {known}.")
        numbers = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        vocabulary, hidden, layers, heads, inner = (self._whole(config, name) for name in numbers)
        end = config["eos_token_id"]
        return TextShape(
            *(kind, vocabulary, hidden, layers, heads, inner, self._whole(config, "max_position_embeddings")),
            activation=config["hidden_act"],
            epsilon=float(config["layer_norm_eps"]),
            width=image.width,
            end=end if isinstance(end, int) else 1,
        )

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        shape = self.shape
        weights = self.checkpoint.weight_shapes()
        if weights is not None and EMBEDDING not in weights:
            raise ModelError(
                f"{self.checkpoint.title} does not have the weights of a text model: {EMBEDDING} is not among them.\n"
                "    get the complete checkpoint."
            )
        if weights is not None and weights[EMBEDDING] != (shape.vocabulary, shape.hidden):
            raise ModelError(
                f"{self.checkpoint.title}: {EMBEDDING} is of the shape {list(weights[EMBEDDING])}, but its config.json "
                f"means {[shape.vocabulary, shape.hidden]}.\n    get the complete checkpoint."
            )
        self.checkpoint.check_tokenizer()

    def load(self, device: torch.device | str = "cpu") -> RowModel:
        """Load the text model. Its files must be on this machine."""
        require_torch(self.checkpoint)
        import torch

        from gristmill.models.vision.text_tower import TextTower, text_state
        from gristmill.models.vision.vit_weights import load_state

        place, shape = torch.device(device), self.shape
        weights = self.checkpoint.weights()
        tensors = Tensors(self.checkpoint.title)
        for name, tensor in weights.under("", lambda name: name.startswith("text_")).items():
            tensors[name] = tensor.float()
        module = TextTower(shape)
        load_state(module, text_state(shape, tensors), self.checkpoint.title)
        dtype = dtype_of(self.precision, place, shape.kind)
        return finished(module, self.checkpoint, place, dtype, self.compiled, (shape.length,), shape.width)

    def _whole(self, config: dict[str, Any], name: str) -> int:
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{self.checkpoint.title}: {name} of its text model is {value!r}, not a whole number.")
        return value


class TextTokens:
    """Texts as tokens of a fixed number, as the text model of a checkpoint was trained on them."""

    def __init__(self, spec: TextSpec) -> None:
        self._tokenizer: ModelTokenizer = load_tokenizer(spec.checkpoint)
        self._shape = spec.shape
        self._title = spec.checkpoint.title

    def of(self, texts: Sequence[str | None]) -> tuple[Array, Truncation]:
        """int32, (texts, length), and what was cut. None is an empty text."""
        length = self._shape.length
        lists, cut = self._tokenizer.tokens(texts, ReadLimits(tokens=length))
        found = np.full((len(texts), length), self._tokenizer.filler, dtype=np.int32)
        offsets = lists.offsets.tolist()
        for row, (start, stop) in enumerate(pairwise(offsets)):
            found[row, : stop - start] = lists.ids[start:stop]
        if found.size and not 0 <= int(found.min()) <= int(found.max()) < self._shape.vocabulary:
            raise ModelError(
                f"{self._title}: its tokenizer makes tokens that the model does not know.\n"
                "    get the tokenizer that belongs to the model."
            )
        return found, cut
