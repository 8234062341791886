"""Any architecture by the classes of transformers, in batches that are padded: right everywhere, fast nowhere."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import np
from gristmill.models.architectures import ARCHITECTURES, most_tokens
from gristmill.models.model import ENDLESS, Reads, Trunk

if TYPE_CHECKING:
    import torch

    from gristmill.models.loading import TrunkSource
    from gristmill.models.tokens import TokenLists

READS_WEIGHTS = ("deberta",)
"""Architectures that read the weights of their dense layers, and do not only call them."""


class PaddedTrunk(Trunk):
    """The layers of transformers' ``AutoModel``. Padding is masked, so it does not change states of other tokens."""

    batch_tokens = 8192

    def __init__(self, source: TrunkSource, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.max_tokens = most_tokens(source.config) or ENDLESS
        self._model = _model_of(source, dtype).to(device)
        self.vocabulary = len(self._model.get_input_embeddings().weight)
        if device.type == "cpu" and source.kind not in READS_WEIGHTS:
            from gristmill.models.trunks.cpu_linear import use_onednn

            use_onednn(self._model)
        self._padding = int(source.config.get("pad_token_id") or 0)
        self._first: Any = None
        """Keys and values of the tokens that all texts begin with."""
        self._first_count = 0
        if source.first_tokens is not None:
            self._first = self._keys_and_values(source.first_tokens)
            self._first_count = len(source.first_tokens.ids)
            self.max_tokens -= self._first_count

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        import torch

        lengths = tokens.lengths
        mask = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
        ids = np.full(mask.shape, self._padding, dtype=np.int64)
        ids[mask] = tokens.ids
        there = torch.from_numpy(mask).to(self.device)
        states = self._states(torch.from_numpy(ids).to(self.device), there)
        if reads == "first":
            return states[:, 0]
        if reads == "last":
            last = torch.from_numpy(lengths - 1).to(self.device)
            return states[torch.arange(len(tokens), device=self.device), last]
        return states[there]

    def _states(self, ids: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        import torch

        if self._first is None:
            found = self._model(input_ids=ids, attention_mask=there.long())
        else:
            first = copy.deepcopy(self._first)  # it grows by the texts of a batch
            first.batch_repeat_interleave(len(ids))
            seen = torch.ones(len(ids), self._first_count, dtype=torch.long, device=self.device)
            found = self._model(
                input_ids=ids,
                attention_mask=torch.cat([seen, there.long()], dim=1),
                position_ids=(torch.arange(ids.shape[1], device=self.device) + self._first_count)[None],
                past_key_values=first,
                use_cache=True,
            )
        states: torch.Tensor = found.last_hidden_state
        return states

    def _keys_and_values(self, tokens: TokenLists) -> Any:
        import torch

        with torch.inference_mode():
            ids = torch.from_numpy(tokens.ids.astype(np.int64)).to(self.device)[None]
            return self._model(input_ids=ids, use_cache=True).past_key_values


def _model_of(source: TrunkSource, dtype: torch.dtype) -> Any:
    """Return the model of transformers with the weights of a checkpoint, or raise a `ModelError`."""
    import torch

    try:
        import transformers
        from huggingface_hub.errors import StrictDataclassError
        from transformers import AutoConfig, AutoModel
    except ImportError:
        raise ModelError(f"{source.title} needs the package transformers: pip install 'gristmill[models]'") from None
    settings = {key: value for key, value in source.config.items() if key not in ("model_type", "auto_map")}
    options: dict[str, Any] = {"add_pooling_layer": False} if ARCHITECTURES[source.kind].has_pooler else {}
    try:
        config = AutoConfig.for_model(source.kind, **settings)
        config.use_cache = False
        with torch.device("meta"):
            empty = AutoModel.from_config(config, trust_remote_code=False, **options)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ModelError(f"{source.title}: its config.json is not valid: {str(error).strip()}") from None
    kind = type(empty)
    _check_shapes(source, {name: tuple(one.shape) for name, one in empty.state_dict().items()})
    transformers.logging.disable_progress_bar()
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it lists the weights of the head as unexpected
    try:
        model, report = kind.from_pretrained(
            None, config=config, state_dict=source.tensors(dtype), dtype=dtype, output_loading_info=True, **options
        )
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{source.title} cannot be loaded: {error}") from None
    finally:
        transformers.logging.set_verbosity(before)
    lost = sorted(map(str, report["missing_keys"]))
    if lost:
        raise ModelError(
            f"{source.title} lacks {len(lost)} weights of its layers, {lost[0]} among them.\n"
            "    get the complete checkpoint."
        )
    return model.eval()


def _check_shapes(source: TrunkSource, wanted: dict[str, tuple[int, ...]]) -> None:
    """Raise a `ModelError` if a weight has not the shape that the configuration asks for."""
    shapes = source.weights.shapes
    for name, shape in wanted.items():
        there = shapes.get(source.prefix + name)
        if there is not None and there != shape:
            raise ModelError(
                f"{source.title}: its weight {name} is {list(there)}, but by its config.json it is {list(shape)}.\n"
                "    get the complete checkpoint, with the config.json that belongs to it."
            )
