"""Sections about documents: the summary, the balance, the funnel and the advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gristmill.metrics.format import duration, size
from gristmill.report.advisor.finding import LEAST_S
from gristmill.report.page.charts import bar
from gristmill.report.page.text import escaped, moment, number
from gristmill.report.place import FAILED, FINISHED, INTERRUPTED, KILLED, RUNNING, Data

STATES = {
    FINISHED: "finished",
    FAILED: "failed",
    INTERRUPTED: "interrupted",
    KILLED: "killed",
    RUNNING: "killed, or still running",
}
MOST_REASONS = 60
MOST_COUNTERS = 40


def state_of(data: Data) -> str:
    state = str(data.get("state"))
    return f'<span class="state {escaped(state)}">{STATES.get(state, "not finished")}</span>'


def summary(data: Data) -> Iterator[str]:
    """Yield the head of the page and the most important figures."""
    began, ended = data.get("started"), data.get("ended") or data.get("updated")
    when = f"{moment(began)} to {moment(ended)}" if began is not None else f"report made {moment(ended)}"
    executor = (data.get("executor") or {}).get("name")
    yield f"<h1>{escaped(data.get('name') or 'run')} {state_of(data)}</h1>"
    if data.get("description"):
        yield f"<p>{escaped(data['description'])}</p>"
    yield f'<p class="soft small">{when}{f" · {escaped(executor)}" if executor else ""}'
    yield f" · {escaped(data['output'])}</p>" if data.get("output") else "</p>"
    if data.get("error"):
        yield f'<div class="card problem"><b>How it ended</b><pre>{escaped(str(data["error"])[:6000])}</pre></div>'
    if data.get("is_without_record"):
        yield "<p>This run wrote no record, so times, workers and memory are not known.</p>"
    yield f'<div class="tiles">{"".join(_tiles(data))}</div>'
    yield from _balance(data)


def _tiles(data: Data) -> Iterator[str]:
    documents = data.get("documents") or {}
    read, kept = documents.get("read"), documents.get("kept")
    wall = wall_of(data)
    if read is not None:
        yield _tile(number(read), f"documents read, {number(documents.get('files', 0))} files")
        yield _tile(number(kept), f"kept{f', {kept / read:.1%}' if read else ''}".replace("%", " %"))
    if wall:
        yield _tile(duration(wall), "wall time")
        here = (read or 0) - int(documents.get("resumed") or 0)
        if here > 0:
            yield _tile(number(round(here / wall)), "documents per second")
    if data.get("cpu_s"):
        yield _tile(duration(float(data["cpu_s"])), "CPU time")
    if data.get("peak_memory_bytes"):
        yield _tile(size(int(data["peak_memory_bytes"])), "memory at most")
    failures = data.get("failures_total")
    if failures:
        yield _tile(number(failures), "failed tasks or parts of tasks")
    if data.get("worker_deaths"):
        yield _tile(number(data["worker_deaths"]), "workers died")


def _tile(value: str, words: str) -> str:
    return f'<div class="tile"><b>{escaped(value)}</b><span>{escaped(words)}</span></div>'


def wall_of(data: Data) -> float:
    """Return the wall time of a run as far as it is known."""
    if data.get("wall_s") is not None:
        return float(data["wall_s"])
    return sum(float(plan.get("wall_s") or 0) for plan in data.get("plans") or ())


def _balance(data: Data) -> Iterator[str]:
    documents = data.get("documents")
    if documents is None:
        yield "<p>No document was accounted for.</p>"
        return
    dropped, errored = gone(documents)
    sides = (
        f"{number(documents['read'])} read + {number(documents['made'])} made",
        f"{number(documents['kept'])} kept + {number(dropped)} dropped + {number(documents['merged'])} merged + "
        f"{number(errored)} in quarantine",
    )
    missing = unfinished(documents)
    verdict = "The account balances: " if not missing and not documents.get("problems") else ""
    rest = f" + {number(missing)} not finished" if missing else ""
    yield f"<p>{verdict}{sides[0]} = {sides[1]}{rest}.</p>"
    blocks = data.get("blocks") or {}
    if blocks.get("resumed"):
        yield (
            f"<p>{number(blocks['resumed'])} of {number(blocks['total'])} blocks were done by earlier runs: documents "
            "count all of them, times and workers are those of the last run.</p>"
        )
    elif documents.get("resumed"):
        yield (
            f"<p>{number(documents['resumed'])} of {number(documents['read'])} documents were read by earlier runs: "
            "documents count all of them, times and workers are those of the last run.</p>"
        )
    if blocks.get("undone"):
        yield f"<p>{number(blocks['undone'])} blocks are not done; the next run repeats them.</p>"


def gone(documents: Data) -> tuple[int, int]:
    """Return the number of dropped documents, and of those in quarantine."""
    dropped = sum(int(n) for *_, n in documents.get("dropped") or ())
    return dropped, sum(int(n) for *_, n in documents.get("errored") or ())


def unfinished(documents: Data) -> int:
    dropped, errored = gone(documents)
    ended = int(documents["kept"]) + dropped + int(documents["merged"]) + errored
    return int(documents["read"]) + int(documents["made"]) - ended


def advice(data: Data) -> Iterator[str]:
    """Yield the findings of the advisor."""
    for finding in data.get("findings") or ():
        yield (
            f'<div class="card {escaped(finding["kind"])}"><b>{_sentence(finding["title"])}</b>'
            f'<div class="soft">{escaped(finding["figure"])}.</div>{escaped(finding["change"])}</div>'
        )
    if not data.get("findings"):
        yield "<p>Nothing to advise.</p>"
    if wall_of(data) < LEAST_S:
        yield f'<p class="soft small">Advice about speed needs a run of at least {LEAST_S:.0f} seconds.</p>'


def _sentence(text: object) -> str:
    words = str(text)
    return escaped(words[:1].upper() + words[1:])


def funnel(data: Data) -> Iterator[str]:
    """Yield the table of documents by stage and reason."""
    documents = data.get("documents")
    if documents is None:
        return
    rows: list[str] = []
    left = int(documents["read"])
    most = max(1, left + int(documents["made"]))
    rows.append(_row("read", "", left, most))
    for reason, n in documents.get("errored") or ():
        left -= int(n)
        rows.append(_row(f"quarantine: {reason}"[:400], f"−{n:,}", left, most, int(n)))
    by_stage: dict[str, list[tuple[str, int]]] = {}
    for stage, reason, n in documents.get("dropped") or ():
        by_stage.setdefault(str(stage), []).append((str(reason), int(n)))
    shown = 0
    for stage in in_order(list(by_stage), data):
        reasons = by_stage[stage]
        whole = sum(n for _, n in reasons)
        left -= whole
        rows.append(_row(stage, f"−{whole:,}", left, most, whole))
        for reason, n in reasons if reasons != [(stage, whole)] else ():
            shown += 1
            if shown <= MOST_REASONS:
                share = f'<td class="bar">{bar(0, ((n / most, "gone faint"),))}</td>'
                rows.append(
                    f'<tr class="reason"><td>{escaped(reason[:300])}</td><td class="n">−{n:,}</td><td></td>{share}</tr>'
                )
    for name, sign in (("made", 1), ("merged", -1)):
        if n := int(documents[name]):
            left += sign * n
            rows.append(_row(name, f"{'+' if sign > 0 else '−'}{n:,}", left, most))
    if n := unfinished(documents):
        rows.append(_row("not finished", f"−{n:,}", left - n, most))
    share = f"{int(documents['kept']) / most:.1%}".replace("%", " %")
    rows.append(_row("kept", share, int(documents["kept"]), most, total=True))
    yield '<div class="scroll"><table class="funnel"><tr><th>stage</th><th class="n">change</th>'
    yield '<th class="n">documents</th><th></th></tr>'
    yield "".join(rows)
    yield "</table></div>"
    if shown > MOST_REASONS:
        yield f'<p class="soft small">{shown - MOST_REASONS:,} more reasons are in report.json.</p>'
    yield from _counters(documents)


def _row(name: str, change: str, left: int, most: int, gone_here: int = 0, total: bool = False) -> str:
    parts = ((max(0, left) / most, "kept"), (gone_here / most, "gone"))
    return (
        f'<tr{" class=total" if total else ""}><td><bdi>{escaped(name)}</bdi></td><td class="n">{change}</td>'
        f'<td class="n">{left:,}</td><td class="bar">{bar(0, parts)}</td></tr>'
    )


def in_order(stages: Sequence[str], data: Data) -> list[str]:
    """Return stages in the order of the pipeline."""
    known = [str(name) for plan in data.get("plans") or () for step in plan["steps"] for name in step.get("stages", ())]
    known = known or [str(stage.get("name")) for stage in data.get("stages") or ()]
    order = {name: i for i, name in enumerate(dict.fromkeys(known))}
    return sorted(stages, key=lambda stage: order.get(stage, len(order)))


def _counters(documents: Data) -> Iterator[str]:
    counted = list(documents.get("counters") or ())
    notes = list(documents.get("notes") or ())
    if not counted and not notes:
        return
    yield "<h3>Counters</h3><ul>"
    for stage, name, n in counted[:MOST_COUNTERS]:
        yield f"<li>{escaped(stage)}: {escaped(name)} {number(n)}</li>"
    for stage, name, values in notes[:MOST_COUNTERS]:
        shown = ", ".join(number(value) for value in values[:10])
        yield f"<li>{escaped(stage)}: {escaped(str(name).replace('_', ' '))} {shown}</li>"
    yield "</ul>"
