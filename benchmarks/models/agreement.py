"""Scores of sequence-classification checkpoints against transformers in float32: largest error, and equal labels.

    python benchmarks/models/agreement.py FOLDER [FOLDER ...] --text sotu.txt
    python benchmarks/models/agreement.py FOLDER --text sotu.txt --device cuda

Both read the same slices of real text. transformers computes text by text, without padding, on the same device. Each
token budget is measured; the first one is computed twice, and must give the same bytes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from texts import slices

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, load
from gristmill.models.tokenizer import ReadLimits, load_tokenizer, token_limit
from gristmill.models.tokens import TokenLists


def reference(folder: Path, tokens: TokenLists, device: str) -> np.ndarray:
    """The logits of transformers in float32."""
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(str(folder), dtype=torch.float32)
    model = model.eval().to(device)
    rows = []
    with torch.inference_mode():
        for ids in np.split(tokens.ids.astype(np.int64), tokens.offsets[1:-1]):
            rows.append(model(input_ids=torch.from_numpy(ids)[None].to(device)).logits[0].float().cpu())
    return torch.stack(rows).numpy()


def compare(folder: Path, texts: list[str], device: str, budgets: list[int]) -> None:
    checkpoint = Checkpoint(str(folder))
    spec = ModelSpec(checkpoint)
    spec.check()
    tokens, _ = load_tokenizer(checkpoint).tokens(texts, ReadLimits(tokens=token_limit(checkpoint, None)))
    began = time.process_time()
    wanted = reference(folder.resolve(), tokens, device)
    theirs = time.process_time() - began
    model = load(spec, device)
    gaps = np.sort(wanted, axis=1)
    nearest = float((gaps[:, -1] - gaps[:, -2]).min()) if wanted.shape[1] > 1 else float("nan")
    kind = str(checkpoint.trunk_config["model_type"])
    print(f"{kind}: {len(texts):,} documents of {tokens.lengths.mean():.0f} tokens on average, at most "
          f"{tokens.lengths.max()}; standard deviation of a logit {wanted.std():.3f}, smallest distance of two labels "
          f"{nearest:.2g}; transformers {theirs:.0f} CPU seconds")  # fmt: skip
    for budget in budgets:
        began = time.process_time()
        found = InferenceEngine(model, token_budget=budget).run(tokens)
        took = time.process_time() - began
        same = int((found.argmax(1) == wanted.argmax(1)).sum())
        print(f"    budget {budget:>6,}: largest error {np.abs(found - wanted).max():.2e}, labels equal "
              f"{same:,} of {len(texts):,}; {took:.0f} CPU seconds", flush=True)  # fmt: skip
    again = InferenceEngine(model, token_budget=budgets[0]).run(tokens)
    first = InferenceEngine(model, token_budget=budgets[0]).run(tokens)
    print(f"    the same budget again: {'the same bytes' if again.tobytes() == first.tobytes() else 'OTHER BYTES'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="a file of real text, .gz or plain")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--tokens", type=float, default=270, help="the median of a document before it is cut")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budgets", type=int, nargs="+", default=[16_384, 2_048])
    options = parser.parse_args()
    texts = slices(options.text, options.documents, 0, options.tokens)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {options.device}")
    for folder in options.folders:
        compare(folder, texts, options.device, options.budgets)


if __name__ == "__main__":
    main()
