"""Documents that a stage which needs all of them cannot make keys of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import edited, execute, lines_of, records_of, texts, write_jsonl, written

from gristmill.errors import PipelineFailed
from gristmill.pipeline.explain import explain
from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

FRONTS = {"read again": [], "put aside": [ScoreFilter(WordCountFilter(min_words=5))]}
"""The stages before the barrier. If there is only a reader, the source is read again after the barrier."""


@pytest.fixture(params=FRONTS)
def front(request) -> list:
    return FRONTS[request.param]


def documents() -> dict[str, list[dict]]:
    """Three files of 20 documents; each text is there twice, in files next to each other, and nearly so once more."""
    some = texts(7, 20, 30)
    found = {name: [] for name in "abc"}
    for n, text in enumerate(some):
        for k, (name, version) in enumerate(zip("abc", (text, text, edited(text, n)), strict=True)):
            found[name].append({"text": version, "n": n, "of": name, "score": (n * 7 + k * 3) % 11})
    return found


def spoilt(found: dict[str, list[dict]], places: Sequence[tuple[str, int]]) -> dict[str, list[dict]]:
    """The same with more documents, that have a score which is no number."""
    more = {name: list(some) for name, some in found.items()}
    for name, place in places:
        more[name].insert(place, {**found[name][place], "score": "n/a", "n": 1000 + place})
    return more


def write(folder: Path, found: dict[str, list[dict]], end: str = ".jsonl") -> Path:
    for name, some in found.items():
        write_jsonl(folder / f"{name}{end}", some)
    return folder


def best() -> ExactDeduplication:
    return ExactDeduplication(survivor="best", score_field="score")


def run(source: Path, out: Path, *stages, blocksize=2500, **options):
    return execute(JsonlReader(str(source), blocksize=blocksize), *stages, JsonlWriter(str(out)), **options)


def check_balance(result, documents: int, errored: int) -> None:
    whole = result.ledger.total()
    assert (whole.documents, whole.errored.total()) == (documents, errored)
    assert whole.documents == whole.kept + whole.dropped.total() + whole.errored.total()
    assert sum(account.read for account in result.ledger.files.values()) == documents
    assert all(account.balances for account in result.ledger.files.values())


def check_quarantine(source: Path, out: Path, numbers: Sequence[int], reason: str) -> None:
    """Each document that was given up is there with its line, its place and the reason."""
    bad = lines_of(out, "quarantine")
    assert sorted(json.loads(one["raw"])["n"] for one in bad) == sorted(numbers)
    for one in bad:
        assert reason in one["reason"]
        line = Path(one["file"]).read_bytes()[one["position"] :].partition(b"\n")[0]
        assert line.decode() == one["raw"] and Path(one["file"]).parent == source


def outcome(out: Path) -> tuple[list, list, list]:
    """The documents that were kept and dropped, and the records, without places in files."""
    dropped = [(d["of"], d["n"], d["excluded_reason"]) for d in lines_of(out, "excluded")]
    records = [{k: v for k, v in row.items() if k.startswith("jaccard")} for row in records_of(out)]
    return [(d["of"], d["n"], d["text"]) for d in lines_of(out)], sorted(dropped), records


PLACES = (("a", 3), ("b", 0), ("b", 1), ("b", 19), ("c", 10))
NUMBERS = [1000 + place for _, place in PLACES]
NOT_NUMBERS = "keys of ExactDeduplication: TypeError: column 'score' holds"


@pytest.mark.parametrize("workers", [0, 2])
def test_only_the_documents_at_fault_are_given_up(tmp_path, front, workers):
    """The others are treated as if these did not exist, though they are read together with them."""
    clean, source = write(tmp_path / "clean", documents()), write(tmp_path / "in", spoilt(documents(), PLACES))
    run(clean, tmp_path / "model", *front, best())
    result = run(source, tmp_path / "out", *front, best(), workers=workers, ignore_failures=True)
    check_balance(result, 65, 5)
    check_quarantine(source, tmp_path / "out", NUMBERS, NOT_NUMBERS)
    assert outcome(tmp_path / "out") == outcome(tmp_path / "model")
    assert result.ledger.total().dropped.total() == 20
    assert "column 'score' holds" in result.summary() and "phases" not in result.summary()


def test_a_run_that_does_not_ignore_failures_stops_before_the_barrier_and_the_next_one_may_resume(tmp_path, front):
    source, out = write(tmp_path / "in", spoilt(documents(), PLACES)), tmp_path / "out"
    with pytest.raises(PipelineFailed, match="column 'score' holds") as failed:
        run(source, out, *front, best())
    assert "phases" not in failed.value.result.summary()
    assert not lines_of(out) and not records_of(out)
    check_balance(run(source, out, *front, best(), ignore_failures=True), 65, 5)
    check_quarantine(source, out, NUMBERS, NOT_NUMBERS)
    run(source, tmp_path / "once", *front, best(), ignore_failures=True)
    assert written(out) == written(tmp_path / "once")


def test_a_run_that_was_stopped_resumes_to_the_same_end(tmp_path, front, monkeypatch):
    source, out = write(tmp_path / "in", spoilt(documents(), PLACES)), tmp_path / "out"
    run(source, tmp_path / "once", *front, best(), ignore_failures=True)
    for stop in ("decide", "after_barrier"):
        with monkeypatch.context() as patched:
            patched.setattr(ExactDeduplication, stop, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(source, out, *front, best(), ignore_failures=True)
    check_balance(run(source, out, *front, best(), ignore_failures=True), 65, 5)
    assert written(out) == written(tmp_path / "once")
    check_balance(run(source, out, *front, best(), ignore_failures=True), 65, 5)
    assert written(out) == written(tmp_path / "once")


def test_a_part_that_is_lost_when_all_is_done_is_made_again(tmp_path):
    source, out = write(tmp_path / "in", spoilt(documents(), PLACES)), tmp_path / "out"
    run(source, out, best(), ignore_failures=True)
    before = written(out)
    for path in out.glob("part-*.jsonl"):
        path.unlink()
    check_balance(run(source, out, best(), ignore_failures=True), 65, 5)
    assert written(out) == before


@pytest.mark.parametrize("of", ["b", "abc"])
def test_all_documents_of_a_file_or_of_all_are_at_fault(tmp_path, front, of):
    found = documents()
    for name in of:
        found[name] = [{**document, "score": "high"} for document in found[name]]
    source, out = write(tmp_path / "in", found), tmp_path / "out"
    for _ in range(2):
        result = run(source, out, *front, best(), blocksize=None, ignore_failures=True, allow_empty=True)
        check_balance(result, 60, 20 * len(of))
        check_quarantine(source, out, list(range(20)) * len(of), NOT_NUMBERS)
        assert {d["of"] for d in lines_of(out)} == set("abc") - set(of)


@pytest.mark.parametrize("end", [".jsonl", ".jsonl.gz"])
def test_similarities_are_verified_of_the_right_documents(tmp_path, front, end):
    def barrier() -> FuzzyDeduplication:
        return FuzzyDeduplication(num_bands=40, minhashes_per_band=4, survivor="best", score_field="score", verify=True)

    clean, source = (
        write(tmp_path / "clean", documents(), end),
        write(tmp_path / "in", spoilt(documents(), PLACES), end),
    )
    run(clean, tmp_path / "model", *front, barrier())
    check_balance(run(source, tmp_path / "out", *front, barrier(), ignore_failures=True), 65, 5)
    assert outcome(tmp_path / "out") == outcome(tmp_path / "model")
    assert {row["jaccard_verified"] for row in records_of(tmp_path / "out")} > {1.0}


def test_similarities_are_verified_where_a_stream_was_given_up_in_its_middle(tmp_path, monkeypatch):
    long = {name: [{**one, "more": "x" * 100_000} for one in some] for name, some in documents().items()}
    source, out = write(tmp_path / "in", long, ".jsonl.gz"), tmp_path / "out"
    keys, odd = FuzzyDeduplication.keys, long["b"][12]["text"]

    def run_out(self, batch):
        if batch.task_id.startswith("1") and odd in batch.data.column("text").to_pylist():
            raise MemoryError("no memory")
        return keys(self, batch)

    monkeypatch.setattr(FuzzyDeduplication, "keys", run_out)
    barrier = FuzzyDeduplication(num_bands=40, minhashes_per_band=4, verify=True)
    result = run(source, out, barrier, blocksize=400_000, ignore_failures=True)
    bad = lines_of(out, "quarantine")
    check_balance(result, 60, len(bad))
    assert 0 < len(bad) < 20 and all("no memory" in one["reason"] for one in bad)
    assert {one["file"] for one in bad} == {str(source / "b.jsonl.gz")}
    assert None not in {row["jaccard_verified"] for row in records_of(out)}


def test_lines_of_documents_whose_text_is_none(tmp_path):
    found = {"a": [{"body": f"one {n}\nof all\nthree {n}", "of": "a", "n": n} for n in range(9)]}
    odd = {"a": [*found["a"][:4], {"body": 5, "of": "a", "n": 1000}, *found["a"][4:]]}
    clean, source = write(tmp_path / "clean", found), write(tmp_path / "in", odd)

    def lines(source: Path, out: Path, **options):
        reader = JsonlReader(str(source), blocksize=200, text_field=None)
        return execute(reader, LineDeduplication("body"), JsonlWriter(str(out)), **options)

    lines(clean, tmp_path / "model")
    check_balance(lines(source, tmp_path / "out", ignore_failures=True), 10, 1)
    assert lines_of(tmp_path / "out") == lines_of(tmp_path / "model")
    check_quarantine(source, tmp_path / "out", [1000], "which is not text")


class Stubborn(ExactDeduplication):
    """Not of gristmill: what it fails on is not looked for by the stage that asks it for keys."""

    def keys(self, batch: DocumentBatch):
        if 5 in batch.data.column("n").to_pylist():
            raise MemoryError("too much for me")
        return super().keys(batch)

    def inputs(self):
        return ["data"], ["text", "n"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("end", [".jsonl", ".jsonl.gz"])
def test_of_a_block_that_was_given_up_each_document_is_accounted_for_with_the_first_reason(tmp_path, end, workers):
    """Or of a batch, where a file is a stream of them."""
    long = {name: [{**one, "more": "x" * 100_000} for one in some] for name, some in documents().items()}
    source, out = write(tmp_path / "in", long, end), tmp_path / "out"
    result = run(source, out, Stubborn(), blocksize=400_000, workers=workers, ignore_failures=True)
    bad = lines_of(out, "quarantine")
    check_balance(result, 60, len(bad))
    told = [(one["file"], one["position"]) for one in bad]
    assert 3 < len(bad) < 60 and len(set(told)) == len(bad)
    assert {file for file, _ in told} == {str(source / f"{name}{end}") for name in "abc"}
    assert all("too much for me" in one["reason"] and '"text"' in one["raw"] for one in bad)
    assert len(lines_of(out)) + len(lines_of(out, "excluded")) + len(bad) == 60
    assert 5 not in {d["n"] for d in lines_of(out)}


@pytest.mark.parametrize("blocksize", [None, 700])
def test_similarities_are_those_of_the_texts_where_others_of_the_block_had_none(tmp_path, blocksize):
    some = [f"größe {n} мир " + " ".join(f"übel{n * k}" for k in range(40)) for n in range(6)]
    for name, bodies in (("a", [*some, 5]), ("b", some)):
        write_jsonl(tmp_path / f"in/{name}.jsonl", [{"text": "x " * 9, "body": body} for body in bodies])
    stage = FuzzyDeduplication("body")
    run(tmp_path / "in", tmp_path / "out", *FRONTS["put aside"], stage, blocksize=blocksize, ignore_failures=True)
    found = records_of(tmp_path / "out")
    assert len(found) == 6 and {row["jaccard_verified"] for row in found} == {1.0}


def test_a_document_that_was_given_up_is_explained(tmp_path):
    source = write(tmp_path / "in", spoilt(documents(), [("b", 4)]))
    stages = [JsonlReader(str(source)), best(), JsonlWriter(str(tmp_path / "out"))]
    execute(*stages, ignore_failures=True)
    (bad,) = lines_of(tmp_path / "out", "quarantine")
    found = explain(stages, f"{bad['file']}#{bad['position']}")
    assert found.stages[0].verdict.startswith("dropped: in quarantine, TypeError: column 'score' holds")
    assert not found.kept


def test_a_file_that_lost_all_documents_is_reported_after_the_barrier(tmp_path, monkeypatch):
    source = write(tmp_path / "in", documents())
    decide = ExactDeduplication.decide

    def emptied(self, between):
        decide(self, between)
        (source / "b.jsonl").write_text("\n" * (source / "b.jsonl").stat().st_size)

    monkeypatch.setattr(ExactDeduplication, "decide", emptied)
    with pytest.raises(PipelineFailed, match=r"b\.jsonl changed after the run was planned"):
        run(source, tmp_path / "out", ExactDeduplication(), blocksize=None)
