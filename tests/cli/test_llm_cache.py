"""``gristmill llm-cache``."""

from __future__ import annotations

import asyncio

from gristmill.cli.main import main
from gristmill.llm.cache import RequestCache
from gristmill.llm.requests import Answer


def test_a_cache_is_shown_and_pruned(tmp_path, capsys):
    cache = RequestCache(str(tmp_path / "out/_gristmill/llm"))

    async def fill() -> None:
        answer = Answer("x" * 500, input_tokens=5, output_tokens=10)
        await asyncio.gather(*(cache.put(n.to_bytes(20, "big"), answer, cost=2e6) for n in range(500)))

    asyncio.run(fill())
    cache.close()
    assert main(["llm-cache", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "500 answers" in shown and "7,500 tokens, cost 1000.00" in shown
    assert main(["llm-cache", str(tmp_path / "out/_gristmill/llm"), "--max-size", "100KB"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("removed ") and "500 answers" not in shown
    assert main(["llm-cache", str(tmp_path / "out"), "--older-than", "1"]) == 0
    assert capsys.readouterr().out.startswith("removed 0 answers")


def test_a_folder_without_a_cache_is_an_error(tmp_path, capsys):
    assert main(["llm-cache", str(tmp_path)]) != 0
    assert "has no request cache" in capsys.readouterr().err
