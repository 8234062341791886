"""Small checkpoints of NVIDIA's classifiers, saved by the classes of NeMo Curator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models import small

TARGETS = {
    "task_type": 4,
    "creativity_scope": 3,
    "reasoning": 3,
    "contextual_knowledge": 2,
    "number_of_few_shots": 6,
    "domain_knowledge": 4,
    "no_label_reason": 1,
    "constraint_ct": 2,
}
DOMAINS = ("Arts", "Health", "News", "Science", "Sports")


def backbone(folder: Path, seed: int) -> Path:
    """Save a small DeBERTa without a head, and its tokenizer."""
    model = small.save_classifier("deberta-v2", folder, seed)
    model.deberta.save_pretrained(str(folder))
    return folder


def _saved(model: Any, config: dict[str, Any], folder: Path) -> Any:
    import torch

    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith(("fc.", "head_")):
                weight.normal_(std=0.5)
    model.save_pretrained(str(folder), config=config)
    small.tokenizer_of("unigram", folder)
    return model.eval()


def save_first_token(folder: Path, seed: int) -> Any:
    """Save a checkpoint as those of the domain, quality and content-type classifiers. Returns the model."""
    from nemo_curator.stages.text.classifiers.base import Deberta

    config = {
        "base_model": str(backbone(folder / "base", seed)),
        "fc_dropout": 0.2,
        "id2label": {str(number): label for number, label in enumerate(DOMAINS)},
        "label2id": {label: number for number, label in enumerate(DOMAINS)},
    }
    return _saved(Deberta(config), config, folder)


def save_prompt_classifier(folder: Path, seed: int) -> Any:
    """Save a checkpoint as that of the prompt classifier. Returns the model."""
    from nemo_curator.stages.text.classifiers.prompt_task_complexity import CustomDeberta

    scales = {name: size for name, size in TARGETS.items() if name != "task_type"}
    config = {
        "base_model": str(backbone(folder / "base", seed)),
        "target_sizes": TARGETS,
        "task_type_map": {"0": "Brainstorming", "1": "Chatbot", "2": "Open QA", "3": "Rewrite"},
        "weights_map": {name: [float(k) for k in range(size)] for name, size in scales.items()},
        "divisor_map": {name: max(1, size - 1) for name, size in scales.items()},
    }
    return _saved(CustomDeberta(config), config, folder)


def scored(model: Any, folder: Path, documents: list[str], longest: int) -> Any:
    """The results of NeMo Curator's model for these texts in one padded batch."""
    import torch
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(str(folder))(
        documents, truncation=True, max_length=longest, padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        return model({"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]})
