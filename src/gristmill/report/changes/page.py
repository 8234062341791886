"""The comparison of two runs as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gristmill.report.page.charts import bar
from gristmill.report.page.page import document_head
from gristmill.report.page.text import escaped, excerpt, moment, number
from gristmill.report.place import Data

LONGEST_TEXT = 500


def page_of(found: Data) -> bytes:
    """Return the page of a comparison."""
    return "".join(_parts(found)).encode("utf-8", "replace")


def _parts(found: Data) -> Iterator[str]:
    yield from document_head("two runs compared")
    yield "<h1>Two runs compared</h1><table>"
    for name, run in zip("AB", found["runs"], strict=True):
        when = moment(run.get("started"))
        yield f"<tr><th>{name}</th><td>{escaped(run['output'])}</td><td>{escaped(run['name'])}</td>"
        yield f'<td class="{escaped(run["state"])}">{escaped(run["state"])}</td><td class="wide">{when}</td></tr>'
    yield "</table><h2>Configuration</h2>"
    yield from _pairs([(f"{one['stage']} {one['key']}".strip(), one["a"], one["b"]) for one in found["configuration"]])
    yield "<h2>Input and versions</h2>"
    yield from _pairs([(one["name"], one["a"], one["b"]) for one in (*found["input"], *found["versions"])])
    yield "<h2>Documents by stage and reason</h2>"
    yield from _documents(found["documents"])
    yield "<h2>Speed</h2>"
    yield from _speed(found["speed"])
    yield "<h2>Documents that changed sides</h2>"
    yield from _sides(found["sides"])
    yield "</body></html>\n"


def _pairs(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        yield "<p>The same.</p>"
        return
    yield "<table><tr><th></th><th>A</th><th>B</th></tr>"
    for cells in rows:
        yield "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def _documents(rows: Sequence[Data]) -> Iterator[str]:
    most = max((abs(row[side] or 0) for row in rows for side in "ab"), default=0) or 1
    yield '<div class="scroll"><table class="funnel"><tr><th>stage</th><th class="n">A</th><th class="n">B</th>'
    yield '<th class="n">B - A</th><th></th></tr>'
    for row in rows:
        a, b = row["a"], row["b"]
        change = "" if a is None or b is None or a == b else f"{b - a:+,}"
        kind = ' class="reason"' if row["reason"] else ""
        colour = "gone" if (a or 0) < 0 or (b or 0) < 0 else "kept"
        both = "".join(
            bar(0, ((abs(value or 0) / most, name),)) for value, name in ((a, f"{colour} faint"), (b, colour))
        )
        yield f"<tr{kind}><td>{escaped(row['reason'] or row['stage'])}</td>"
        yield "".join(f'<td class="n">{cell}</td>' for cell in (number(a), number(b), change))
        yield f'<td class="bar">{both}</td></tr>'
    yield '</table></div><p class="soft small">Upper bar: A; lower bar: B.</p>'


def _speed(rows: Sequence[Data]) -> Iterator[str]:
    if not rows:
        yield "<p>Neither run has recorded times.</p>"
        return
    yield '<table><tr><th></th><th class="n">A</th><th class="n">B</th><th class="n">B / A</th></tr>'
    for row in rows:
        a, b = row["a"], row["b"]
        ratio = f"{b / a:.2f}" if a and b is not None else ""
        cells = "".join(f'<td class="n">{cell}</td>' for cell in (number(a), number(b), ratio))
        yield f"<tr><td>{escaped(row['name'])}</td>{cells}</tr>"
    yield "</table>"


def _sides(sides: Data) -> Iterator[str]:
    if sides.get("problem"):
        yield f"<p>{escaped(sides['problem'])}.</p>"
        return
    if sides["without_id"]:
        field = escaped(sides["id_field"])
        yield f"<p>{number(sides['without_id'])} documents have no field {field}: they were compared by their text.</p>"
    for key, words, run in (
        ("dropped_in_b", "Kept in A, dropped in B", "B"),
        ("dropped_in_a", "Dropped in A, kept in B", "A"),
    ):
        yield f"<h3>{words}: {number(sides[key]['documents'])}</h3>"
        for group in sides[key]["groups"]:
            stage, reason = escaped(group["stage"]), escaped(group["reason"])
            yield f"<p>{number(group['documents'])} by {stage} of {run}: {reason}</p>"
            yield '<div class="cards">' + "".join(_example(one) for one in group["examples"]) + "</div>"


def _example(example: Data) -> str:
    score = "" if example.get("score") is None else f"score {number(example['score'])}"
    head = f'<span class="small soft">{escaped(example.get("id", "no id"))} {score}</span>'
    return f'<div class="card dropped">{head}{excerpt(example["text"], LONGEST_TEXT, example["characters"])}</div>'
