"""Many requests against a slow, unreliable server: share of its capacity, CPU per request, and a peer.

    nice python benchmarks/llm/latency.py [--requests 20000] [--in-flight 256] [--peers curator] [--kills 10]

With ``--kills`` the driver gets SIGKILL so many times at random. The output is compared with that of a run without
kills, and the calls of the server with the documents.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import LatencyServer, command, digest, measured, share_of_capacity, write_input

CURATOR = """
import asyncio, json, sys, time
from loguru import logger
logger.remove()
from nemo_curator.models.client.llm_client import GenerationConfig
from nemo_curator.models.client.openai_client import AsyncOpenAIClient

url, count, in_flight, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

async def main():
    options = dict(max_concurrent_requests=in_flight, max_retries=6, base_delay=0.5)
    client = AsyncOpenAIClient(**options, base_url=url, api_key="x")
    client.setup()
    config = GenerationConfig(max_tokens=64, seed=1, top_p=None, temperature=None)
    failed = 0
    with open(output, "w") as file:
        async def one(n):
            nonlocal failed
            messages = [{"role": "user", "content": f"Say something about document number {n}"}]
            try:
                answer = (await client.query_model(messages=messages, model="m", generation_config=config))[0]
            except Exception:
                failed += 1
                return
            file.write(json.dumps({"n": n, "answer": answer}) + "\\n")
        begun = time.monotonic()
        await asyncio.gather(*(one(n) for n in range(count)))
    print(json.dumps({"wall_s": round(time.monotonic() - begun, 2), "kept": count - failed, "errored": failed}))

asyncio.run(main())
"""


def server(options: argparse.Namespace) -> LatencyServer:
    return LatencyServer("--seed", str(options.seed), "--median-ms", str(options.median_ms))


def ours(options: argparse.Namespace, source: Path, output: Path) -> dict[str, Any]:
    """A run without kills."""
    one = server(options)
    found = measured(command(source, output, one.base_url, options.concurrency or str(options.in_flight)))
    log = one.get("log")
    edge = min(1000, options.requests // 20)
    share = share_of_capacity(one, options.in_flight, edge, options.requests - edge)
    one.stop()
    print(found.pop("summary"), file=sys.stderr)
    answers = [json.loads(line) for file in sorted(output.glob("part-*.jsonl")) for line in file.open()]
    numbers = [row["n"] for row in answers]
    assert found["kept"] + found["errored"] == options.requests == len(numbers) + found["errored"]
    assert len(set(numbers)) == len(numbers), "an answer was written twice"
    assert numbers == sorted(numbers) and all(row["answer"] for row in answers)
    return {"benchmark": "llm latency", **found, **share, "log": log, **per_request(found, options.requests)}


def per_request(found: dict[str, Any], count: int) -> dict[str, float]:
    return {"cpu_ms_per_request": round(found["all_cpu_s"] / count * 1000, 3)}


def curator(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """NeMo Curator's asynchronous client on the same requests."""
    one = server(options)
    words = [sys.executable, "-c", CURATOR, one.base_url, str(options.requests), str(options.in_flight)]
    found = measured([*words, str(folder / "curator.jsonl")])
    edge = min(1000, options.requests // 20)
    answered = one.get("log")["answers"]
    share = share_of_capacity(one, options.in_flight, edge, min(answered, options.requests - edge))
    log = one.get("log")
    one.stop()
    return {"benchmark": "llm latency, NeMo Curator's client", **found, **share, "log": log} | per_request(
        found, options.requests
    )


def killed(options: argparse.Namespace, source: Path, output: Path) -> dict[str, Any]:
    """A run whose driver is killed again and again."""
    one = server(options)
    words = command(source, output, one.base_url, options.concurrency or str(options.in_flight))
    number = random.Random(options.seed)
    marks = sorted(number.sample(range(options.requests // 100, options.requests), options.kills))
    kills = 0
    for mark in marks:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while process.poll() is None and one.get("log")["answers"] < mark:
            time.sleep(0.02)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    found = measured(words)
    found.pop("summary")
    log = one.get("log")
    one.stop()
    most = options.requests + log["faults"] + options.in_flight * kills
    lost = log["calls"] - log["faults"] - options.requests
    checks = {"kills": kills, "lost_calls": lost, "lost_per_kill": round(lost / max(1, kills), 1), "most_calls": most}
    assert log["calls"] <= most, (log["calls"], most)
    return {"benchmark": "llm latency, driver killed", **checks, "log": log, "last_run": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--concurrency", default="", help='"auto": found by the client, up to --in-flight')
    parser.add_argument("--median-ms", type=float, default=200.0)
    parser.add_argument("--peers", default="", help="curator")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="llm-latency-"))
    try:
        source = write_input(folder / "input", options.requests)
        print(json.dumps({"seed": options.seed, **ours(options, source, folder / "calm")}), flush=True)
        if options.kills:
            found = killed(options, source, folder / "killed")
            found["same_output"] = digest(folder / "killed") == digest(folder / "calm")
            print(json.dumps(found), flush=True)
            assert found["same_output"]
        if "curator" in options.peers:
            print(json.dumps(curator(options, folder)), flush=True)
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
