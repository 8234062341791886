"""The job of these runs: Gopher's rules from JSON lines to JSON lines, with fuzzy deduplication if asked for.

python job.py INPUT OUTPUT [--pipeline filter|fuzzy] [--blocksize SIZE] [--cpus N] [--endpoint URL]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.recipes import recipe


def pipeline(
    source: str,
    output: str,
    blocksize: str | None = None,
    options: dict[str, Any] | None = None,
    fuzzy: bool = False,
) -> Pipeline:
    storage = {"storage_options": options} if options else None
    return Pipeline(
        "gopher",
        stages=[
            JsonlReader(source, blocksize=blocksize, read_kwargs=storage),
            recipe("gopher-quality"),
            recipe("gopher-repetition"),
            *([FuzzyDeduplication()] if fuzzy else []),
            JsonlWriter(output, write_kwargs=storage),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--pipeline", choices=("filter", "fuzzy"), default="filter")
    parser.add_argument("--blocksize")
    parser.add_argument("--cpus", type=float, default=2)
    parser.add_argument("--endpoint", help="of an S3 server")
    args = parser.parse_args()
    options = {"endpoint_url": args.endpoint, "key": "test", "secret": "test"} if args.endpoint else None
    job = pipeline(args.input, args.output, args.blocksize, options, args.pipeline == "fuzzy")
    result = job.run(LocalExecutor(config={"num_cpus": args.cpus, "view": "off"}))
    whole = result.ledger.total() if result.ledger else None
    assert whole is not None and result.ledger is not None
    print(
        json.dumps(
            {
                "read": whole.documents,
                "kept": whole.kept,
                "dropped": whole.dropped.total(),
                "errored": dict(whole.errored),
                "blocks": len(result.ledger.blocks),
                "resumed": result.ledger.resumed,
                "wall_s": round(result.record.wall_s, 2),
                "busy": round(next(iter(result.steps.values())).busy_share, 3),
                "peak_mb": round(result.record.peak_memory_bytes / 2**20),
            }
        )
    )


if __name__ == "__main__":
    main()
