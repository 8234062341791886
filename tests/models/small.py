"""Small checkpoints with random weights, as transformers saves them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

TEXT = """
the quick brown fox jumps over lazy dog while rain falls on quiet hills and rivers carry stones to distant seas
teachers explain fractions prices fall markets rise buy now cheap watches click here science history music café
"""
WORDS = TEXT.split()
SPECIAL = {
    "wordpiece": dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"),
    "unigram": dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"),
    "bytes": dict(pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"),
}
SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
POSITIONS = 66
DEBERTA = dict(
    relative_attention=True,
    position_buckets=16,
    max_relative_positions=-1,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    position_biased_input=False,
    type_vocab_size=0,
)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("wordpiece", SHAPE),
    "roberta": ("bytes", SHAPE | dict(type_vocab_size=1)),
    "xlm-roberta": ("unigram", SHAPE | dict(type_vocab_size=1)),
    "deberta": ("wordpiece", SHAPE | DEBERTA | dict(share_att_key=False, norm_rel_ebd="none")),
    "deberta-v2": ("unigram", SHAPE | DEBERTA),
    "distilbert": ("wordpiece", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48)),
    "electra": ("wordpiece", SHAPE | dict(embedding_size=24)),
    "mpnet": ("wordpiece", SHAPE),
    "modernbert": ("bytes", SHAPE | dict(local_attention=8, global_attn_every_n_layers=2)),
    "llama": ("bytes", SHAPE | dict(num_key_value_heads=2)),
    "qwen2": ("bytes", SHAPE | dict(num_key_value_heads=2, use_sliding_window=False)),
}
"""A kind of tokenizer and the configuration of each architecture."""


def texts(rng: random.Random, count: int, longest: int = 40) -> list[str]:
    """Random texts of different lengths, empty ones among them."""
    made = [" ".join(rng.choices(WORDS, k=rng.randint(0, longest))) for _ in range(count)]
    return [text.capitalize() + rng.choice(("", ".", "?\n", " — ok", "!!")) if text else text for text in made]


def tokenizer_of(kind: str, folder: Path, longest: int = 64, ends: bool = True) -> Any:
    """Train a tokenizer on the words and save it as transformers does; ``ends``: texts end with a special token."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = SPECIAL[kind]
    options: dict[str, Any] = {"vocab_size": 300, "special_tokens": list(special.values()), "show_progress": False}
    if kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(**options)
        made.decoder = decoders.WordPiece()
    elif kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="[UNK]", **options)
        made.decoder = decoders.Metaspace()
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
        made.decoder = decoders.ByteLevel()
    made.train_from_iterator([" ".join(WORDS)] * 4 + WORDS, trainer)
    first, last = special.get("cls_token", special.get("bos_token")), special.get("sep_token", special.get("eos_token"))
    made.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}" if ends else f"{first} $A",
        special_tokens=[(first, made.token_to_id(first)), (last, made.token_to_id(last))],
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=longest, **special)
    tokenizer.save_pretrained(str(folder))
    return tokenizer


def save_classifier(
    kind: str, folder: Path, seed: int, labels: tuple[str, ...] = ("bad", "fair", "good"), **more: Any
) -> Any:
    """Save a sequence-classification checkpoint of an architecture with random weights. Returns the model."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForSequenceClassification

    which, shape = ARCHITECTURES[kind]
    tokenizer = tokenizer_of(which, folder)
    config = AutoConfig.for_model(
        kind,
        **{"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS, **shape, **more},
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():  # larger than at the start of a training, so that texts differ
            weight.add_(torch.randn_like(weight) * 0.2)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(str(folder))
    return model


def reference_logits(model: Any, folder: Path, documents: list[str], longest: int = 64) -> Any:
    """The logits of transformers in float32, text by text and without padding."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    rows = []
    with torch.inference_mode():
        for text in documents:
            tokens = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
            tokens.pop("token_type_ids", None)
            rows.append(model(**tokens).logits[0])
    return torch.stack(rows).numpy()
