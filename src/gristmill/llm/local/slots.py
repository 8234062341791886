"""A model with slots, each with the keys and values of one answer, and a step for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.llm.local.sampling import Sampler, Settings

if TYPE_CHECKING:
    import torch

ATTENTION = "gristmill_slots"
BUCKET = 256
"""Keys are read in multiples of this many tokens."""


class SlotCache:
    """The keys and values of all slots, in the place of a cache of transformers."""

    layers: Sequence[Any] = ()
    is_sliding: Sequence[bool] = (False,)
    is_compileable = False

    def __init__(self, config: Any, slots: int, longest: int, device: torch.device, dtype: torch.dtype) -> None:
        import torch

        heads = config.num_key_value_heads
        size = head_size(config)
        shape = (slots, heads, longest, size)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.rows: torch.Tensor | None = None
        """The slots of a prompt; None in a step of all slots."""
        self.positions = torch.zeros(slots, dtype=torch.int64, device=device)
        self._every = torch.arange(slots, device=device)
        self.length = 0
        """How many tokens of each slot are read."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values. Return those that the attention reads."""
        if self.rows is not None:
            count = keys.shape[2]
            self.keys[layer][self.rows, :, :count] = keys
            self.values[layer][self.rows, :, :count] = values
            return keys, values
        self.keys[layer][self._every, :, self.positions] = keys[:, :, 0]
        self.values[layer][self._every, :, self.positions] = values[:, :, 0]
        return self.keys[layer][:, :, : self.length], self.values[layer][:, :, : self.length]

    def get_seq_length(self, layer: int = 0) -> int:
        return 0


def head_size(config: Any) -> int:
    """The length of a key."""
    given = config.to_dict().get("head_dim")
    return int(given or config.hidden_size // config.num_attention_heads)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in which the keys of a group are read once for all of its queries, and never copied."""
    import torch

    rows, heads, count, size = query.shape
    groups = key.shape[1]
    if count > 1:
        made = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
        )
        return made.transpose(1, 2), None
    scores = query.reshape(rows, groups, heads // groups, size) @ key.transpose(2, 3) * scaling
    scores = scores.masked_fill(~attention_mask, -torch.inf)
    shares = scores.float().softmax(-1).to(value.dtype)
    return (shares @ value).reshape(rows, 1, heads, size), None


class SlotModel:
    """Prompts go into free slots, then each step adds a token to every slot. Not safe for several threads."""

    def __init__(self, model: Any, slots: int, longest: int) -> None:
        """``longest``: the most tokens of a prompt and its answer together."""
        import torch
        from transformers import AttentionInterface

        AttentionInterface.register(ATTENTION, grouped_attention)
        config = model.config.get_text_config()
        model.set_attn_implementation(ATTENTION)
        self.model = model.eval()
        self.device: torch.device = model.device
        self.slots = slots
        self.longest = longest
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        self.cache = SlotCache(config, slots, longest, self.device, model.dtype)
        self.tokens = torch.zeros(slots, dtype=torch.int64, device=self.device)
        """The last token of each slot: the input of the next step."""
        self.sampler = Sampler(slots, self.vocabulary, self.device)
        self._indices = torch.arange(longest, device=self.device)
        self._graphs: dict[tuple[int, str], Any] = {}
        self._pool: Any = None

    def begin(self, rows: Sequence[int], prompts: Sequence[Sequence[int]]) -> None:
        """Read prompts into slots, and choose the first token of each answer."""
        import torch

        longest = max(map(len, prompts))
        ids = torch.zeros((len(prompts), longest), dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        at = torch.arange(longest, device=self.device)
        mask = (at[:, None] >= at[None, :])[None, None]
        slots = torch.tensor(rows, device=self.device)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        self.cache.rows = slots
        with torch.inference_mode():
            hidden = self._hidden(ids.to(self.device), at[None].expand(len(prompts), -1), mask)
            logits = self._logits(hidden[torch.arange(len(prompts), device=self.device), last])
            self.tokens[slots] = self.sampler.chosen(logits, slots)
            self.cache.positions[slots] = last + 1
        self.cache.rows = None

    def step(self, longest: int) -> None:
        """Add a token to every slot. ``longest``: the tokens in the fullest slot that is used."""
        import torch

        self.cache.length = min(self.longest, -(-(longest + 1) // BUCKET) * BUCKET)
        with torch.inference_mode():
            if self.device.type != "cuda":
                self._step()
                return
            key = (self.cache.length, self.sampler.kind)
            if key not in self._graphs:
                self._graphs[key] = self._captured()
            self._graphs[key].replay()

    def _step(self) -> None:
        positions = self.cache.positions
        mask = (self._indices[: self.cache.length] <= positions[:, None])[:, None, None]
        hidden = self._hidden(self.tokens[:, None], positions[:, None], mask)
        self.tokens.copy_(self.sampler.chosen(self._logits(hidden[:, 0]), None))
        positions.add_(1).clamp_(max=self.longest - 1)  # unused slots go on writing into their last place

    def _captured(self) -> Any:
        """The step as a CUDA graph: hundreds of launches become one."""
        import torch

        before = self.tokens.clone(), self.cache.positions.clone(), self.sampler.state()
        new_stream: Any = torch.cuda.Stream  # without types in torch
        stream = new_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step()
        self._pool = self._pool or graph.pool()
        self.tokens.copy_(before[0])
        self.cache.positions.copy_(before[1])
        self.sampler.restore(before[2])
        return graph

    def _hidden(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.model.base_model(
            input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=self.cache, use_cache=True
        ).last_hidden_state
        return made

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.model.get_output_embeddings()(hidden)
        return made

    def set(self, slot: int, settings: Settings) -> None:
        """Set how the tokens of a slot are chosen."""
        self.sampler.set(slot, settings)
