"""The request cache: answers survive `kill -9`, are shared by processes, and damaged ones do not count."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys

import pytest

from gristmill.llm.cache import RequestCache
from gristmill.llm.errors import Unusable
from gristmill.llm.requests import Answer


def key(n: int) -> bytes:
    return n.to_bytes(20, "big")


def answer(n: int) -> Answer:
    return Answer(f"answer {n} \u00e4\ud83d".encode("utf-8", "replace").decode(), "stop", n, 2 * n, 0.5)


async def fill(cache: RequestCache, numbers: range) -> None:
    await asyncio.gather(*(cache.put(key(n), answer(n), cost=n) for n in numbers))


def test_answers_are_found_again(tmp_path):
    cache = RequestCache(str(tmp_path / "new"))
    assert cache.get(key(1)) is None
    asyncio.run(fill(cache, range(100)))
    assert [cache.get(key(n)) for n in range(100)] == [answer(n) for n in range(100)]
    assert cache.spent() == (3 * sum(range(100)), sum(range(100)))
    cache.close()
    again = RequestCache(str(tmp_path / "new"))
    assert again.get(key(99)) == answer(99) and again.state().answers == 100
    again.close()


def test_an_answer_that_is_damaged_on_disk_does_not_count(tmp_path):
    cache = RequestCache(str(tmp_path))
    asyncio.run(fill(cache, range(2)))
    with sqlite3.connect(cache.path) as connection:
        connection.execute("UPDATE answers SET answer = ? WHERE key = ?", (b'["other","stop",1,1,1]', key(1)))
    assert cache.get(key(0)) == answer(0) and cache.get(key(1)) is None
    cache.close()


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_cache_is_an_error_that_says_what_to_do(tmp_path, content):
    (tmp_path / "requests.sqlite").write_bytes(content)
    with pytest.raises(Unusable, match=r"requests\.sqlite cannot be used.*Move the file away"):
        RequestCache(str(tmp_path))


def test_two_caches_on_one_file_see_each_others_answers(tmp_path):
    one, other = RequestCache(str(tmp_path)), RequestCache(str(tmp_path))

    async def both() -> None:
        await asyncio.gather(fill(one, range(200)), fill(other, range(200, 400)))

    asyncio.run(both())
    assert one.get(key(399)) == answer(399) and other.get(key(0)) == answer(0)
    assert one.state().answers == 400 and one.spent() == (3 * sum(range(400)), sum(range(400)))
    one.close()
    other.close()


def test_pruning_removes_the_oldest_answers(tmp_path):
    cache = RequestCache(str(tmp_path))
    asyncio.run(fill(cache, range(3000)))
    before = cache.state()
    removed = cache.prune(most_bytes=before.size // 2)
    after = cache.state()
    assert after.size <= before.size // 2 and after.answers == 3000 - removed and after.answers > 1000
    assert os.path.getsize(cache.path) <= before.size // 2 + 4096
    assert cache.get(key(0)) is None and cache.get(key(2999)) == answer(2999)
    assert after.tokens == before.tokens, "what was spent stays"
    assert cache.prune(older_than_s=3600) == 0
    assert cache.prune(older_than_s=-5) == after.answers
    cache.close()


WRITER = """
import asyncio, sys
from gristmill.llm.cache import RequestCache
from gristmill.llm.requests import Answer

async def main():
    cache = RequestCache(sys.argv[1])
    async def one(n):
        await cache.put(n.to_bytes(20, "big"), Answer(f"answer {n}"))
        sys.stdout.write(f"{n}\\n")  # only now does the request count as done
        sys.stdout.flush()
    for start in range(0, 1_000_000, 16):
        await asyncio.gather(*(one(n) for n in range(start, start + 16)))

asyncio.run(main())
"""


def test_no_committed_answer_is_lost_by_a_kill(tmp_path):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    for _ in range(3):
        folder = str(tmp_path)
        process = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        wanted = number.randrange(20, 400)
        done = [int(process.stdout.readline()) for _ in range(wanted)]
        os.kill(process.pid, signal.SIGKILL)
        rest = process.communicate()[0].rpartition("\n")[0].split("\n")
        done += [int(line) for line in rest if line]
        cache = RequestCache(folder)
        assert [n for n in done if cache.get(key(n)) != Answer(f"answer {n}")] == []
        cache.close()
