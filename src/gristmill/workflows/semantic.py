"""Semantic deduplication from files of embeddings to duplicates, and to the files without them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gristmill.secrets import public_options, public_url
from gristmill.sizes import parse_size
from gristmill.stages.deduplication.semantic.arguments import problems
from gristmill.stages.deduplication.semantic.arithmetic import DEVICES
from gristmill.stages.deduplication.semantic.embeddings import SOURCE
from gristmill.stages.protocols import Paths
from gristmill.stages.resources import Resources
from gristmill.stages.text.io.formats import FORMATS
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.storage import TEMPORARY, Folder
from gristmill.workflows.semantic_result import SemanticDeduplicationResult

if TYPE_CHECKING:
    from gristmill.backends.base import Executor

_NAME = (
    r"(part-(\d{6}|z+\d{7,})([.-]z*\d+|\.(step|phase)\d+|\.failed-(\d+-\d+|all))*|clusters-\d{8,}-\d{8,}\.\d{5,})"
    r"\.(parquet|jsonl(\.(gz|zst|bz2))?)"
)
_OWN_NAME = re.compile(rf"{_NAME}|{re.escape(TEMPORARY)}([0-9a-f]{{8}}-)?{_NAME}-[0-9a-f]{{8}}")
"""Files that a run writes, finished or not. A user's own files have other names, and stay."""
OWN = (
    "pairwise_results",
    "duplicates",
    "quarantine",
    "deduplicated",
    "deduplicated/excluded",
    "deduplicated/quarantine",
)
"""Folders of the output."""
DECISIVE = (
    "n_clusters",
    "id_field",
    "embedding_field",
    "embedding_dim",
    "metadata_fields",
    "input_filetype",
    "max_iter",
    "tol",
    "random_state",
    "init",
    "fit_data_fraction",
    "distance_metric",
    "which_to_keep",
    "score_field",
    "text_field",
    "eps",
    "perform_removal",
    "memory_limit",
)
"""Arguments that results depend on; on ``memory_limit`` by the size of a sample."""


@dataclass(eq=False, repr=False)
class SemanticDeduplicationWorkflow:
    """Finds documents that mean the same: k-means over their embeddings, then similarities inside each cluster.

        SemanticDeduplicationWorkflow("embedded/", "out/", n_clusters=1000, eps=0.05, perform_removal=True).run()

    A document is a duplicate if one that is ranked before it in its cluster has a cosine similarity of at least
    1 - ``eps``. ``which_to_keep`` is the ranking: "hard" (the farthest from the centroid first), "easy" (the nearest),
    "random" (by a hash of the id), "first" of the input, "longest" text (``text_field``), or "best" (the highest
    ``score_field``). ``distance_metric`` is that of "hard" and "easy".

    Written to ``output_path``: ``pairwise_results/`` (every document with its most similar one of a higher rank), with
    ``eps`` also ``duplicates/`` (a record for each), with ``perform_removal`` also ``deduplicated/`` (the input
    without them), and ``quarantine/`` (documents without a usable embedding, which are kept). Results depend on the
    input and the arguments above only: not on workers, executors, block sizes or devices.

    ``n_clusters=None`` chooses one cluster for each 1,000 documents, at most the square root of their number.
    ``input_path`` is a file, a folder, a glob or a list. ``id_field=None`` takes ``<file>#<position>`` for an id.
    ``cache_path`` (else the output) must be a folder that all workers see. ``memory_limit`` is for embeddings in
    memory, all processes together: k-means is fitted on a sample if half of it cannot hold all. ``device`` None is a
    GPU if there is one and torch is installed, else the CPUs, for which NumPy is enough. ``output_filetype`` None is
    that of the input.
    """

    input_path: Paths
    output_path: str | os.PathLike[str]
    n_clusters: int | None
    cache_path: str | os.PathLike[str] | None = None
    id_field: str | None = "id"
    embedding_field: str = "embeddings"
    embedding_dim: int | None = None
    metadata_fields: Sequence[str] | None = None
    input_filetype: str = "parquet"
    blocksize: int | str | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: str = "k-means++"
    fit_data_fraction: float | None = None
    distance_metric: str = "cosine"
    which_to_keep: str = "hard"
    score_field: str | None = None
    text_field: str = "text"
    pairwise_batch_size: int = 1024
    eps: float | None = None
    perform_removal: bool = False
    memory_limit: int | str | None = None
    device: str | None = None
    kmeans_resources: Resources | None = None
    pairwise_resources: Resources | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    keep_cache: bool = False
    verbose: bool = True
    output_filetype: str | None = None

    def __post_init__(self) -> None:
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self.metadata_fields = list(self.metadata_fields or ())
        self.write_kwargs = dict(self.write_kwargs or {})
        self.storage_options: dict[str, Any] = dict(self.write_kwargs.get("storage_options") or {})
        self.output = Folder(self.output_path, self.storage_options)
        cache = self.output_path if self.cache_path is None else self.cache_path
        self.store_path = posixpath.join(_local(os.fspath(cache)), "kmeans_results")
        for problem in self._problems():
            raise ValueError(f"SemanticDeduplicationWorkflow: {problem}.")

    def _problems(self) -> Iterator[str]:
        for name, known in (
            ("input_filetype", FORMATS),
            ("output_filetype", (None, *FORMATS)),
            ("device", DEVICES),
        ):
            if getattr(self, name) not in known:
                words = ", ".join(repr(one) for one in known)
                yield f"{name} must be one of {words}, not {getattr(self, name)!r}"
        yield from problems({field.name: getattr(self, field.name) for field in fields(self)})
        if self.perform_removal and self.eps is None:
            yield "perform_removal needs eps: from which similarity on is a document a duplicate"
        if not set(self.metadata_fields or ()).isdisjoint({"id", SOURCE}):
            yield f"metadata_fields may not hold 'id' and {SOURCE!r}: records have columns of these names"

    def run(self, executor: Executor | None = None, *, fresh: bool = False) -> SemanticDeduplicationResult:
        """Run on an executor; None is this machine.

        A run that was stopped resumes after its last done step, and a finished run changes nothing; ``fresh`` removes
        its files and starts over. Raise `OutputChanged` if the output is of other arguments or input.
        """
        from gristmill.workflows.embedding_files import GivenEmbeddings
        from gristmill.workflows.semantic_run import SemanticRun

        return SemanticRun(self, executor, GivenEmbeddings(self)).run(fresh)

    def decisive(self) -> dict[str, Any]:
        """Return the arguments that results depend on, and the output."""
        values = {name: getattr(self, name) for name in DECISIVE}
        output = public_url(self.output.full_path())
        if self.output_filetype is not None:
            values["output_filetype"] = self.output_filetype
        return values | {"output_path": output, "write_kwargs": public_options(self.write_kwargs or {})}

    def own_files(self) -> Iterator[str]:
        """Yield the names of files that a run has written to the output."""
        for place in OWN:
            for name in self.output.names(place, unfinished=True):
                if _OWN_NAME.fullmatch(name):
                    yield f"{place}/{name}"
        if self.output.exists("deduplicated/_gristmill"):
            yield "deduplicated/_gristmill"

    def reader(self, text_field: str | None = None) -> FileReader:
        """Return the reader of the input: the same blocks in each call.

        With ``text_field`` it sets records without a text there aside.
        """
        kind = FORMATS[self.input_filetype].reader
        return kind(self.input_path, blocksize=self.blocksize, read_kwargs=self.read_kwargs, text_field=text_field)

    def writer(self, path: str) -> FileWriter:
        kind: Any = FORMATS[self.output_filetype or self.input_filetype].writer
        written: FileWriter = kind(path, write_kwargs=self.write_kwargs)
        return written

    def place(self, name: str) -> str:
        """Return the folder of a result."""
        return self.output.full_path(name)


def _local(path: str) -> str:
    folder = Folder(path)
    if not folder.is_local:
        raise ValueError(
            f"SemanticDeduplicationWorkflow: cache_path must be a folder that all workers see as one of their own, "
            f"not {path!r}: give cache_path=... beside an output elsewhere."
        )
    return os.path.abspath(folder.root)
