"""A server with the HTTP API of OpenAI that answers after a random time, and fails as planned.

    python benchmarks/llm/latency_server.py [--median-ms 200] [--slow 0.05] [--faults 0.03] ...

It prints its port on the first line. Latencies are lognormal with the given median, and a share of requests is slow.
Of the faults a third is 429, a third 500, a sixth dropped connections and a sixth truncated JSON. A fault hits the
first attempt of a request. A hash of the body and the seed decides which requests have one. Answers are made of the
prompt, so that the output of a run can be compared with that of another one.

A prompt with ``REPLY<<one||two>>`` is answered with ``one``, and with ``two`` when the answer is sent back. ``/log``
returns counts of what was asked and sent.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import math
import random
import re
import sys
import time
from typing import Any

import orjson
from aiohttp import web

FATES = ("429", "429", "500", "500", "drop", "cut")
_REPLY = re.compile(r"REPLY<<(.*?)>>", re.DOTALL)


class Server:
    """Answers requests and remembers what happened."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.seen: dict[bytes, int] = {}
        """Attempts by hash of the body."""
        self.fates: dict[str, int] = {}
        self.answered_at: list[float] = []
        self.service_s: list[float] = []
        self.in_flight = self.most_in_flight = self.repeated = self.unauthorized = 0
        self.answered: set[bytes] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/completions", self.complete)
        app.router.add_get("/log", self.log)
        app.router.add_get("/times", self.times)
        app.router.add_get("/health", self.health)
        return app

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def log(self, request: web.Request) -> web.Response:
        calls = sum(self.seen.values())
        mean = sum(self.service_s) / max(1, len(self.service_s))
        return web.json_response(
            {
                "calls": calls,
                "distinct": len(self.seen),
                "answers": len(self.answered_at),
                "repeated": self.repeated,
                "faults": sum(self.fates.values()),
                "fates": self.fates,
                "unauthorized": self.unauthorized,
                "most_in_flight": self.most_in_flight,
                "mean_s": mean,
            }
        )

    async def times(self, request: web.Request) -> web.Response:
        return web.json_response(self.answered_at)

    def latency(self) -> float:
        if self.options.median_ms <= 0:
            return 0.0
        if self.random.random() < self.options.slow:
            return self.options.slow_s
        return math.exp(self.random.gauss(math.log(self.options.median_ms / 1000), self.options.sigma))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.options.key and key != self.options.key:
            self.unauthorized += 1
            return web.json_response({"error": {"message": f"Incorrect API key provided: {key}"}}, status=401)
        raw = await request.read()
        ident = hashlib.blake2b(raw, digest_size=16).digest()
        first = ident not in self.seen
        self.seen[ident] = self.seen.get(ident, 0) + 1
        self.repeated += ident in self.answered
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        begun = time.monotonic()
        try:
            return await self._complete(request, orjson.loads(raw), ident, first, key)
        finally:
            self.in_flight -= 1
            self.service_s.append(time.monotonic() - begun)

    def fate(self, ident: bytes) -> str:
        number = int.from_bytes(hashlib.blake2b(ident, digest_size=8, salt=b"%d" % self.options.seed).digest(), "big")
        share = number / 2**64
        if share >= self.options.faults:
            return "ok"
        return FATES[int(share / self.options.faults * len(FATES))]

    async def _complete(
        self, request: web.Request, body: dict[str, Any], ident: bytes, first: bool, key: str
    ) -> web.StreamResponse:
        fate = self.fate(ident) if first else "ok"
        if fate != "ok":
            self.fates[fate] = self.fates.get(fate, 0) + 1
        echo = f" (request with key {key})" if self.options.echo_key else ""
        if fate == "429":
            error = {"error": {"message": f"too many requests{echo}"}}
            return web.json_response(error, status=429, headers={"Retry-After": self.options.retry_after})
        if fate == "500":
            return web.json_response({"error": {"message": f"internal error{echo}"}}, status=500)
        await asyncio.sleep(self.latency())
        if fate == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if "response_format" in body and self.options.structured == "refuse":
            return web.json_response({"error": {"message": "response_format is not known"}}, status=400)
        if "REFUSE" in orjson.dumps(body.get("messages") or body.get("prompt")).decode():
            return web.json_response({"error": {"message": f"the prompt is too long{echo}"}}, status=400)
        text = self.answer(body)
        used = {"prompt_tokens": 20, "completion_tokens": max(1, len(text) // 4)}
        is_chat = "messages" in body
        if body.get("stream"):
            return await self._streamed(request, body, text, used, ident, cut=fate == "cut")
        message = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        whole = orjson.dumps({"choices": [{"index": 0, "finish_reason": "stop", **message}], "usage": used})
        if fate == "cut":
            return web.Response(body=whole[: len(whole) // 2], content_type="application/json")
        self._note(ident)
        return web.Response(body=whole, content_type="application/json")

    async def _streamed(
        self, request: web.Request, body: dict[str, Any], text: str, used: dict[str, int], ident: bytes, cut: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events: list[dict[str, Any]] = []
        for start in range(0, len(text), 8):
            piece = text[start : start + 8]
            events.append({"delta": {"content": piece}} if "messages" in body else {"text": piece})
        for event in events[: len(events) // 2 if cut else None]:
            await response.write(b"data: " + orjson.dumps({"choices": [{"index": 0, **event}]}) + b"\n\n")
        if not cut:
            end: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            await response.write(b"data: " + orjson.dumps(end) + b"\n\n")
            if (body.get("stream_options") or {}).get("include_usage"):
                await response.write(b"data: " + orjson.dumps({"choices": [], "usage": used}) + b"\n\n")
            await response.write(b"data: [DONE]\n\n")
            self._note(ident)
        await response.write_eof()
        return response

    def _note(self, ident: bytes) -> None:
        self.answered_at.append(time.monotonic())
        self.answered.add(ident)

    def answer(self, body: dict[str, Any]) -> str:
        messages = body.get("messages")
        words = body.get("prompt", "")
        turn = 0
        if messages:
            asked = [m["content"] for m in messages if m["role"] == "user"]
            turn = min(1, len(asked) - 1)
            first = asked[0]
            words = first if isinstance(first, str) else first[-1]["text"]
        if found := _REPLY.search(words):
            replies = found[1].split("||")
            return replies[min(turn, len(replies) - 1)]
        form = body.get("response_format")
        if form and self.options.structured == "honour":
            return json.dumps(instance(form["json_schema"]["schema"]))
        digest = hashlib.blake2b(f"{words}{body.get('seed')}{turn}".encode(), digest_size=16).hexdigest()
        return f"answer {digest} to {words[-40:]}"


def instance(schema: dict[str, Any]) -> Any:
    """Return a value that matches a simple schema."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: instance(one) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema["items"])] * schema.get("minItems", 1)
    simple: dict[str, Any] = {"string": "text", "integer": schema.get("minimum", 3), "number": 0.5, "boolean": True}
    return simple.get(kind)


async def serve(options: argparse.Namespace) -> None:
    runner = web.AppRunner(Server(options).app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port, backlog=4096)
    await site.start()
    assert site._server is not None
    sockets: Any = site._server
    print(sockets.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends with the process that started it


def main() -> None:
    logging.getLogger("aiohttp.server").disabled = True
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--median-ms", type=float, default=200.0)
    parser.add_argument("--sigma", type=float, default=0.4)
    parser.add_argument("--slow", type=float, default=0.05)
    parser.add_argument("--slow-s", type=float, default=2.0)
    parser.add_argument("--faults", type=float, default=0.03)
    parser.add_argument("--retry-after", default="1")
    parser.add_argument("--structured", choices=("honour", "ignore", "refuse"), default="honour")
    parser.add_argument("--key", default="")
    parser.add_argument("--echo-key", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
