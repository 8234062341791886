"""Sections about contents: scores with thresholds and examples, duplicates, quarantine, failures, configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gristmill.images.shown import ImageFacts
from gristmill.metrics.format import size
from gristmill.report.page.charts import bar, histogram
from gristmill.report.page.text import escaped, excerpt, number
from gristmill.report.place import Data

LONGEST_TEXT = 500
MOST_STAGES = 200
_DATA = re.compile(r"data:image/jpeg;base64,[A-Za-z0-9+/]+={0,2}")


def scores(data: Data, examples: int) -> Iterator[str]:
    """Yield for each rule its histogram and the documents nearest to its threshold."""
    if "excluded" not in data:
        yield (
            "<p>Scores and examples are read from the output when the run has ended. To read them earlier, or if the "
            "run was killed, call <code>gristmill report</code>.</p>"
        )
        return
    found = data["excluded"] or {}
    rules = found.get("rules") or ()
    if not rules:
        yield "<p>No dropped document is at hand: nothing was dropped, or the writer keeps no excluded documents.</p>"
        return
    yield (
        f'<p class="soft small">From {number(found["read"])} dropped documents in {number(found["files"])} of '
        f"{number(found['files_total'])} files in <code>excluded/</code>. Examples are nearest to the threshold.</p>"
    )
    for rule in rules:
        yield from _rule(rule, examples)


def _rule(rule: Data, examples: int) -> Iterator[str]:
    dropped, kept = rule["dropped"], rule.get("kept") or {}
    name = f"{rule['rule']} · {rule['stage']}" if rule["rule"] != rule["stage"] else str(rule["rule"])
    yield f"<h3><bdi>{escaped(name[:300])}</bdi></h3>"
    if rule.get("text"):
        keeps = "drops" if rule.get("inverted") else "keeps"
        yield f'<p class="soft small">{keeps} {escaped(rule["text"])}</p>'
    if rule.get("histogram"):
        limits = [(float(rule[key]), key == "least") for key in ("least", "most") if key in rule]
        is_of_all = bool(rule["histogram"].get("is_of_all"))
        yield histogram("Scores" if is_of_all else "Scores of dropped documents only", rule["histogram"], limits)
    both = [*(kept.get("examples") or ())[:examples], *dropped["examples"][:examples]]
    if both:
        yield f"<details><summary>{len(both)} examples nearest to the threshold</summary>"
        yield '<div class="cards">' + "".join(_example(example) for example in both) + "</div></details>"


def _example(example: Data) -> str:
    side = str(example.get("side", "kept"))
    score = example.get("score")
    words = [side if side == "kept" else f"dropped: {example.get('reason', '')}"]
    if isinstance(score, int | float):
        words.append(f"score {number(score)}")
    return _document(example, " · ".join(words), side)


def _document(document: Data, words: str, kind: str) -> str:
    ident = f'<span class="soft small"> <bdi>{escaped(document["id"])}</bdi></span>' if "id" in document else ""
    text = excerpt(str(document.get("text") or ""), LONGEST_TEXT, document.get("characters"))
    head = f'<span class="small">{escaped(words)}</span>{ident}'
    if "image" not in document and "video" not in document:
        return f'<div class="card {kind}">{head}{text}</div>'
    return f'<div class="card {kind}">{head}<div class="image">{_picture(document)}<div>{text}</div></div></div>'


def _picture(document: Data) -> str:
    """Return a thumbnail with the facts of the image or clip. What is no thumbnail of ours is not shown."""
    words = escaped(_facts(document))
    shown = str(document.get("thumbnail") or "")
    picture = f'<img alt="" src="{shown}">' if _DATA.fullmatch(shown) else '<span class="no">no picture</span>'
    return f'<figure>{picture}<figcaption class="soft small">{words}</figcaption></figure>'


def _facts(document: Data) -> str:
    if "video" in document:
        return str(document["video"])
    known = ImageFacts(*(document["image"].get(name, 0) for name in ImageFacts._fields))
    return known.words(size(int(known.bytes)))


def kept(data: Data, examples: int) -> Iterator[str]:
    """Yield a few kept documents."""
    found = (data.get("kept") or ())[: 4 if examples else 0]
    if found:
        yield "<h3>Some kept documents</h3>"
        yield '<div class="cards">' + "".join(_document(one, "kept", "kept") for one in found) + "</div>"


def duplicates(data: Data, examples: int) -> Iterator[str]:
    """Yield clusters by size, and some of them."""
    for found in data.get("duplicates") or ():
        if found.get("problem"):
            yield f"<p>{escaped(found['problem'])}</p>"
            continue
        if found.get("too_many"):
            yield (
                f"<p>More than {number(found['too_many'])} records are in <code>{escaped(found['folder'])}/</code>: "
                "<code>gristmill report</code> counts the sizes of clusters of up to 5 million.</p>"
            )
            continue
        yield (
            f"<p>{number(found['removed'])} removed, in {number(found['clusters'])} clusters; the largest has "
            f"{number(found['largest'])}. Records are in <code>{escaped(found['folder'])}/</code>.</p>"
        )
        most = max((n for *_, n in found["sizes"]), default=0) or 1
        yield '<table><tr><th>documents in a cluster</th><th class="n">clusters</th><th></th></tr>'
        for low, high, n in found["sizes"]:
            name = f"{low}" if low == high else f"{low} to {high}" if high else f"{low} and more"
            yield f'<tr><td>{name}</td><td class="n">{n:,}</td><td class="bar">{bar(n / most)}</td></tr>'
        yield "</table>"
        for cluster in (found.get("examples") or ())[: 5 if examples else 0]:
            yield from _cluster(cluster, examples)
    for note in data.get("notes") or ():
        yield f'<p class="soft small">{escaped(note)}</p>'


def _cluster(cluster: Data, examples: int) -> Iterator[str]:
    yield f"<h3>A cluster of {number(cluster['size'])}</h3>"
    yield '<div class="cards">' + _document(cluster["survivor"], "stays", "kept")
    for member in cluster["members"][:examples]:
        similarity = member.get("similarity")
        words = "removed" if similarity is None else f"removed · similarity {number(similarity)}"
        yield _document(member, words, "dropped")
    yield "</div>"


def quarantine(data: Data, examples: int) -> Iterator[str]:
    """Yield bad records by reason."""
    counted = (data.get("documents") or {}).get("errored") or ()
    if not counted and not data.get("quarantine"):
        yield "<p>Nothing is in quarantine.</p>"
        return
    if counted:
        yield '<table><tr><th>reason</th><th class="n">documents</th></tr>'
        for reason, n in counted[:50]:
            yield f'<tr><td>{escaped(str(reason)[:500])}</td><td class="n">{n:,}</td></tr>'
        yield "</table>"
    for group in data.get("quarantine") or ():
        yield f"<h3>{escaped(group['reason'][:300])}</h3>"
        for one in group["examples"][:examples]:
            where = f"{one['file']} at {one['position']}, stage {one['stage']}"
            yield _document({"text": one["text"], "characters": one["characters"]}, where, "dropped")


def failures(data: Data) -> Iterator[str]:
    """Yield the first failures with what happened, and warnings of the run."""
    found = data.get("failures") or ()
    total = int(data.get("failures_total") or len(found))
    if not found and not data.get("messages"):
        yield "<p>No task failed.</p>"
        return
    if total > len(found):
        yield f"<p>{total:,} failures; the first {len(found)}:</p>"
    for one in found:
        items = f" ({number(one.get('items'))} items)"
        yield (
            f'<div class="card problem"><b>{escaped(one["stage"])}, task {escaped(one["task"])}{items}</b>'
            f"{escaped(one['error'])}"
        )
        story = "\n".join(str(line) for line in one.get("story") or ())
        for words, text in (("what happened", story), ("where", str(one.get("detail") or ""))):
            if text.strip():
                yield f"<details><summary>{words}</summary><pre>{escaped(text)}</pre></details>"
        yield "</div>"
    for message in data.get("messages") or ():
        yield f'<p class="small">{escaped(message)}</p>'


def configuration(data: Data) -> Iterator[str]:
    """Yield the pipeline, the command, versions and the machine."""
    if data.get("pipeline"):
        yield f"<pre>{escaped(data['pipeline'])}</pre>"
    else:
        names = [str(stage.get("name")) for stage in (data.get("stages") or ())[:MOST_STAGES]]
        yield f"<p>{escaped(' → '.join(names)) or 'The pipeline is not known.'}</p>"
    machine, executor = data.get("machine") or {}, data.get("executor") or {}
    options = ", ".join(f"{name}={value}" for name, value in (executor.get("options") or {}).items())
    inputs = data.get("inputs") or {}
    versions = {"gristmill": data.get("gristmill"), **(data.get("versions") or {})}
    rows = (
        ("command", " ".join(str(part) for part in data.get("command") or ())),
        ("executor", f"{executor.get('name', '')} {options}".strip()),
        ("input", _inputs(inputs)),
        ("output", str(data.get("output") or "")),
        ("machine", _machine(machine)),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items() if value)),
    )
    cells = "".join(f"<tr><th>{name}</th><td>{escaped(value)}</td></tr>" for name, value in rows if value)
    yield f"<table>{cells}</table>"


def _inputs(inputs: Data) -> str:
    names = list(inputs.get("names") or ())
    if not names:
        return ""
    more = int(inputs["files"]) - 3
    return f"{int(inputs['files']):,} files: {', '.join(names[:3])}{f' and {more:,} more' if more > 0 else ''}"


def _machine(machine: Data) -> str:
    if not machine:
        return ""
    return f"{machine['system']}, {float(machine['cpus']):g} CPUs, {size(int(machine['memory_bytes']))}"
