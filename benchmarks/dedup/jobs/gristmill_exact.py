"""Exact deduplication by gristmill, with the records of what was removed. gristmill_exact.py SOURCE OUT WORKERS"""

import json
import sys
import time

from gristmill.backends.local import LocalExecutor
from gristmill.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow


def main() -> None:
    source, out, workers = sys.argv[1:]
    ready = time.time()
    result = ExactDeduplicationWorkflow(source, out).run(LocalExecutor({"num_cpus": float(workers), "view": "off"}))
    print("FIGURES " + json.dumps({"ready": ready, "kept": result.documents - result.duplicates}))


if __name__ == "__main__":
    main()
