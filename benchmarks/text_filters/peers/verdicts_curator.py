"""The verdicts of NeMo Curator's filters for each document. verdicts_curator.py SOURCE OUT"""

import json
import sys
from pathlib import Path

from curator_rules import RULES


def main() -> None:
    with open(sys.argv[2], "w") as out:
        for path in sorted(Path(sys.argv[1]).glob("*.jsonl")):
            for line in path.open(encoding="utf-8"):
                document = json.loads(line)
                verdict = {rule: judge(filter_, document["text"]) for rule, filter_ in RULES.items()}
                out.write(json.dumps({"id": document["id"], "verdicts": verdict}) + "\n")


def judge(filter_: object, text: str) -> "list[float | bool] | str":
    """[score, keep], or the error that it ends with."""
    try:
        score = filter_.score_document(text)
        return [score, bool(filter_.keep_document(score))]
    except ArithmeticError as error:
        return type(error).__name__


if __name__ == "__main__":
    main()
