"""A small Llama with an adapter, as PEFT saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models import small

PROMPT = """\
[INST] Task: the quick brown fox explains science history
{rules}
<BEGIN>
User: {{text}}

<END>
safe or unsafe? [/INST]"""


def prompt(lines: int = 6) -> str:
    """A prompt with a place for the text."""
    rules = "\n".join(f"O{number}: {' '.join(small.WORDS[number : number + 9])}." for number in range(1, lines + 1))
    return PROMPT.format(rules=rules)


def save_llama(folder: Path, seed: int, **more: Any) -> Any:
    """Save a small causal language model and its tokenizer. Returns the model."""
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = small.tokenizer_of("bytes", folder, longest=4096, ends=False)
    options = {**small.SHAPE, "num_key_value_heads": 2, "max_position_embeddings": 4096, **more}
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, bos_token_id=2, eos_token_id=3, **options)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(str(folder))
    return model


def save_adapter(model: Any, folder: Path, seed: int, **more: Any) -> Any:
    """Put a random LoRA adapter around a model and save the adapter alone. Returns the adapted model."""
    import torch
    from peft import LoraConfig, get_peft_model

    options = {"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj", "down_proj"], **more}
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.2)
    adapted.save_pretrained(str(folder))
    return adapted


def next_logits(model: Any, folder: Path, documents: list[str]) -> Any:
    """The logits of the next token after each text, by transformers, text by text."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    with torch.inference_mode():
        rows = [model(**tokenizer(text, return_tensors="pt")).logits[0, -1] for text in documents]
    return torch.stack(rows).float()


def generated(model: Any, folder: Path, documents: list[str], count: int) -> list[list[str]]:
    """The most probable tokens that the model writes after each text, as texts: of the first one, the first two, ..."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    written = []
    for text in documents:
        tokens = tokenizer(text, return_tensors="pt")
        found = model.generate(**tokens, max_new_tokens=count, do_sample=False, pad_token_id=0)
        ids = found[0, tokens["input_ids"].shape[1] :]
        written.append([tokenizer.decode(ids[:end], skip_special_tokens=True) for end in range(1, len(ids) + 1)])
    return written
