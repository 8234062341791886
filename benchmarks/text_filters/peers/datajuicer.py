"""The job on Data-Juicer: 13 rules, the nearest it has, fewer and simpler than Gopher's.

datajuicer.py SOURCE OUT WORKERS
"""

import json
import shutil
import sys
import time
from pathlib import Path

from data_juicer.config import init_configs
from data_juicer.core import DefaultExecutor

RULES = [
    {"words_num_filter": {"min_num": 50, "max_num": 100000}},
    {"text_length_filter": {"min_len": 150, "max_len": 1000000}},
    {"alphanumeric_filter": {"min_ratio": 0.6}},
    {"special_characters_filter": {"max_ratio": 0.25}},
    {"average_line_length_filter": {"min_len": 10}},
    {"maximum_line_length_filter": {"min_len": 20}},
    {"character_repetition_filter": {"rep_len": 10, "max_ratio": 0.3}},
    *(
        {"word_repetition_filter": {"rep_len": n, "max_ratio": most}}
        for n, most in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    ),
]


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
        "op_fusion": False,
        "skip_op_error": False,
        "process": RULES,
    }
    path = out / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    ready = time.time()
    DefaultExecutor(init_configs(["--config", str(path)])).run()
    kept = (out / "out.jsonl").read_bytes().count(b"\n")
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))


if __name__ == "__main__":
    main()
