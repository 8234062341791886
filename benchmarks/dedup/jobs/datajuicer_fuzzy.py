"""Fuzzy deduplication by Data-Juicer, 24 characters, 20 bands of 13. datajuicer_fuzzy.py SOURCE OUT WORKERS"""

import json
import shutil
import sys
import time
from pathlib import Path

from data_juicer.config import init_configs
from data_juicer.core import DefaultExecutor

RULE = {
    "document_minhash_deduplicator": {
        "tokenization": "character",
        "window_size": 24,
        "lowercase": True,
        "num_permutations": 260,
        "num_bands": 20,
        "num_rows_per_band": 13,
        "jaccard_threshold": 0.8,
    }
}


def main() -> None:
    source, out, workers = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute(), int(sys.argv[3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    config = {
        "project_name": "benchmark",
        "dataset_path": str(source),
        "export_path": str(out / "out.jsonl"),
        "np": workers,
        "use_cache": False,
        "open_tracer": False,
        "skip_op_error": False,
        "process": [RULE],
    }
    path = out / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    ready = time.time()
    DefaultExecutor(init_configs(["--config", str(path)])).run()
    kept = (out / "out.jsonl").read_bytes().count(b"\n")
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))


if __name__ == "__main__":
    main()
