"""The cost of reading and writing alone: every line parsed by orjson, made JSON again and written. No rule at all.

floor.py SOURCE OUT WORKERS
"""

import orjson
from by_file import main


def one_file(names: tuple[str, str]) -> int:
    kept = 0
    with open(names[0], "rb") as source, open(names[1], "wb") as out:
        for line in source:
            out.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))
            kept += 1
    return kept


if __name__ == "__main__":
    main(one_file)
