"""Duplicate pairs of images by `perception`, run in an interpreter that has it: ``FILES OUT METHOD``.

``FILES`` names a file with one path per line. ``phash`` is what its documentation recommends for most uses (PHash with
hash_size=16, distance 0.2), ``descriptors`` its local descriptors with all defaults.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from perception import hashers, tools


def main() -> None:
    files = Path(sys.argv[1]).read_text().splitlines()
    began = time.perf_counter()
    if sys.argv[3] == "phash":
        pairs = tools.deduplicate(files=files, hashers=[(hashers.PHash(hash_size=16), 0.2)])
    else:
        from perception.local_descriptor_deduplication import deduplicate

        pairs = deduplicate(files)
    took = time.perf_counter() - began
    Path(sys.argv[2]).write_text(json.dumps({"seconds": took, "pairs": [[str(x) for x in pair[:2]] for pair in pairs]}))


if __name__ == "__main__":
    main()
