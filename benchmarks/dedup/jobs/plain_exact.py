"""Exact deduplication by hand: a set of hashes, one process, lines copied as they are. plain_exact.py SOURCE OUT"""

import hashlib
import json
import sys
import time
from pathlib import Path

import orjson


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    ready = time.time()
    seen: set[bytes] = set()
    with (out / "kept.jsonl").open("wb") as kept:
        for path in sorted(source.glob("*.jsonl")):
            with path.open("rb") as lines:
                for line in lines:
                    text = orjson.loads(line)["text"]
                    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
                    if digest not in seen:
                        seen.add(digest)
                        kept.write(line)
    print("FIGURES " + json.dumps({"ready": ready, "kept": len(seen)}))


if __name__ == "__main__":
    main()
