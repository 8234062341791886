"""What was observed of a run, as plain values for `report.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.secrets import without_secrets
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID
from gristmill.videos.shown import clip_bytes, is_video, name_of, still, words

if TYPE_CHECKING:
    from gristmill.metrics.history import History, PlanHistory, Point
    from gristmill.metrics.observer import DocumentsMoment, Moment
    from gristmill.scheduling.snapshot import Snapshot

MOST_POINTS = 300
MOST_DECISIONS = 500
MOST_FAILURES = 20
MOST_REASONS = 300
LONGEST = 2_000
"""Characters of an error or a message."""
LONGEST_DETAIL = 6_000
LONGEST_EXAMPLE = 500
THUMBNAIL = "thumbnail"
"""The key of a small picture as a ``data:`` URI, which is shown or left out, never cut."""

_RUN_SERIES = ("held_bytes", "reserved_bytes", "memory_bytes", "read", "kept", "bottleneck")
_STEP_SERIES = (
    *("busy", "idle", "starting", "draining", "queued", "queued_bytes"),
    *("tasks_done", "items_done", "tasks_failed", "busy_s", "waiting_s", "blocked_s"),
)
_OF_STAGE = (
    *("name", "step", "tasks_in", "items_in", "tasks_done", "tasks_out", "items_out", "tasks_dropped"),
    *("tasks_failed", "items_failed", "busy_s"),
)
_OF_STEP = ("name", "stages", "cpus", "gpus", "gpu_memory_gb", "memory_gb", "batch_size", "num_workers")


def plans_of(history: History) -> list[dict[str, Any]]:
    """Return the plans that a run has begun, each with its series over time."""
    return [_plan(plan) for plan in history.plans]


def _plan(plan: PlanHistory) -> dict[str, Any]:
    last = plan.last
    made: dict[str, Any] = {
        "executor": plan.plan.executor,
        "steps": [values_of(step, _OF_STEP) for step in plan.plan.steps],
        "series": _series(thinned(plan.points), len(plan.plan.steps)),
        "decisions": [
            {"at_s": round(one.at_us / 1e6, 3), "text": cut(one.text)} for one in plan.decisions[:MOST_DECISIONS]
        ],
        "decisions_total": len(plan.decisions),
        "wall_s": 0.0,
    }
    return made if last is None else made | _last(last, made["steps"])


def _last(moment: Moment, steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the last moment of a plan. Those of single steps are added to ``steps``."""
    snapshot = moment.snapshot
    for step, of_step in zip(steps, snapshot.steps, strict=True):
        step |= {
            "dedicated": of_step.dedicated,
            "tasks_done": of_step.tasks_done,
            "items_done": of_step.items_done,
            "tasks_failed": of_step.tasks_failed,
            "busy_s": of_step.busy_us / 1e6,
            "service_s": of_step.service_us / 1e6,
            "setup_s": of_step.setup_us / 1e6,
            **values_of(of_step, ("units_done", "retries", "bytes_out", "started", "deaths", "recycled", "setups")),
            "latency": list(of_step.latency),
        }
    for step, peak in zip(steps, moment.steps_memory, strict=False):
        step["peak_worker_bytes"] = peak
    return {
        "wall_s": snapshot.now_us / 1e6,
        "bottleneck": snapshot.bottleneck,
        "budget_bytes": snapshot.budget_bytes,
        "memory_limit": moment.memory_limit,
        "source_taken": snapshot.source_taken,
        "source_total": snapshot.source_total,
        "source_bytes": snapshot.source_bytes,
        "shared_started": snapshot.shared_started,
        "shared_deaths": snapshot.shared_deaths,
        "stages": [values_of(stage, _OF_STAGE) for stage in moment.stages],
        "failures_total": moment.failures_total,
        "gpus": _gpus(snapshot),
        "input": None if moment.progress is None else values_of(moment.progress, ("blocks", "blocks_total", "bytes")),
    }


def _gpus(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "index": gpu.index,
            "memory_total": gpu.memory_total,
            "steps": sorted({worker.step for worker in gpu.workers}),
        }
        for gpu in snapshot.gpus
    ]


def _series(points: Sequence[Point], steps: int) -> dict[str, Any]:
    """Return the points as one list for each value: small, and fast to write."""
    by_name = {name: [vars_of(point, name) for point in points] for name in _RUN_SERIES}
    return {
        "at_s": [round(point.at_s, 3) for point in points],
        **by_name,
        "gpu_busy_percent": [list(point.gpu_busy_percent) for point in points],
        "gpu_memory_bytes": [list(point.gpu_memory_bytes) for point in points],
        "steps": [
            {name: [vars_of(point.steps[i], name) for point in points] for name in _STEP_SERIES} for i in range(steps)
        ],
    }


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """Return at most ``most`` points, evenly spaced, with the first and the last one."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(i * last / (most - 1))] for i in range(most)]


def documents_of(documents: DocumentsMoment | None) -> dict[str, Any] | None:
    """Return the account of documents; the rarest reasons are counted together if there are very many."""
    if documents is None:
        return None
    return {
        **values_of(documents, ("read", "made", "kept", "merged", "failed", "problems")),
        "dropped": [[*key, n] for key, n in most_common(documents.dropped, ("", "other reasons"))],
        "errored": [[cut(key), n] for key, n in most_common(documents.errored, "other reasons")],
        "counters": [[*key, n] for key, n in most_common(documents.counters, ("", "other counters"))],
    }


def most_common(counts: Mapping[Any, int], other: Any, most: int = MOST_REASONS) -> list[tuple[Any, int]]:
    """Return the largest counts in order, and the sum of the rest under ``other``."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    if len(ordered) <= most:
        return ordered
    return [*ordered[: most - 1], (other, sum(n for _, n in ordered[most - 1 :]))]


def values_of(made: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return attributes as a dict. `dataclasses.asdict` copies deeply, which takes ten times as long."""
    return {name: vars_of(made, name) for name in names}


def vars_of(made: Any, name: str) -> Any:
    value = getattr(made, name)
    if isinstance(value, float):
        return round(value, 4)
    return list(value) if isinstance(value, tuple) else value


def public(value: Any) -> Any:
    """Return plain values without the secrets of URLs in them: names, messages and arguments may hold URLs.

    Texts of documents, under the key "text", stay as they are, and so do thumbnails.
    """
    if isinstance(value, str):
        return without_secrets(value) if "://" in value else value
    if isinstance(value, dict):
        return {public(key): inner if key in ("text", THUMBNAIL) else public(inner) for key, inner in value.items()}
    if isinstance(value, list) and not (value and isinstance(value[0], int | float)):
        return [public(inner) for inner in value]
    return value


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text without its end if it is long."""
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text):,} characters)"


def text_and_id(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the beginning of the text of a record, its length, and the id if it has one.

    Of an image or a clip the text is the caption, and its facts and a thumbnail are there too.
    """
    if isinstance(image := record.get(IMAGE), bytes):
        return _image(record, image)
    if is_video(record):
        return _video(record)
    text = record.get("text")
    if not isinstance(text, str):
        texts = [value for value in record.values() if isinstance(value, str)]
        text = max(texts, key=len, default="")
    ident = record.get("id")
    made: dict[str, Any] = {"text": text[:LONGEST_EXAMPLE], "characters": len(text)}
    return made if ident is None else made | {"id": str(ident)[:300]}


def _image(record: Mapping[str, Any], image: bytes) -> dict[str, Any]:
    from gristmill.images.shown import facts, thumbnail

    caption = record.get(CAPTION)
    text = caption if isinstance(caption, str) else ""
    ident = record.get(IMAGE_ID)
    known = facts(image)
    return {
        "text": text[:LONGEST_EXAMPLE],
        "characters": len(text),
        **({} if ident is None else {"id": str(ident)[:300]}),
        "image": known._asdict(),
        THUMBNAIL: thumbnail(image),
    }


def _video(record: Mapping[str, Any]) -> dict[str, Any]:
    from gristmill.images.shown import thumbnail_of
    from gristmill.metrics.format import size

    caption = record.get(CAPTION)
    text = caption if isinstance(caption, str) else ""
    ident, data, pixels = name_of(record), clip_bytes(record), still(record)
    return {
        "text": text[:LONGEST_EXAMPLE],
        "characters": len(text),
        **({} if ident is None else {"id": ident[:300]}),
        "video": words(record, "" if data is None else size(len(data))),
        THUMBNAIL: "" if pixels is None else thumbnail_of(pixels),
    }
