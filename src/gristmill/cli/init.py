"""``gristmill init``: an example pipeline with its input."""

from __future__ import annotations

from pathlib import Path

from gristmill.cli.sample import write_sample
from gristmill.cli.target import UsageError

EXAMPLE = """\
# A pipeline: documents flow through the stages from top to bottom.
#
#     gristmill run {file}                  runs it; run it again after a crash to resume
#     gristmill run {file} --dry-run        shows what would run
#     gristmill run {file} --set gopher-quality.word_count.min_words=20
#     gristmill stages                      lists all stages, gristmill stages NAME documents one

name: clean
description: keeps what reads like text, and redacts personal data

stages:
  # Where documents come from: a file, a folder, a pattern, a list of them, or a URL such as s3://bucket/folder.
  # Relative paths begin at the folder of this file.
  # Large files are read in blocks by several workers; blocksize: 64MB sets their size.
  - JsonlReader:
      file_paths: input/

  # Published rules by name. A threshold can be changed, and a rule can be skipped:
  #   - recipe: {{name: gopher-quality, set: {{word_count.min_words: 20, stop_words: false}}}}
  - recipe: gopher-quality
  - recipe: gopher-repetition

  # A single filter, with its score in a field. 'name' is its name in the ledger.
  - ScoreFilter:
      filter_obj: {{LongWordFilter: {{max_word_length: 100}}}}
      score_field: longest_word
    name: no_long_words

  # Changes to the remaining texts.
  - Modify:
      modifier_fn: [NewlineNormalizer, PiiRedactor]

  # The kept documents. The dropped ones are in excluded/ beside them, with the rule and the score.
  - JsonlWriter:
      path: output/
"""


def init(path: str) -> list[str]:
    """Write the example and its input to a folder. Return messages. Nothing is overwritten."""
    folder = Path(path)
    file = folder / "pipeline.yaml"
    if folder.suffix in (".yaml", ".yml"):
        folder, file = folder.parent, folder
    source = folder / "input"
    for there in (file, source):
        if there.exists():
            raise UsageError(f"{there} exists already; nothing was written. Name another folder: gristmill init NAME")
    try:
        source.mkdir(parents=True)
        documents, size = write_sample(source)
        file.write_text(EXAMPLE.format(file=file.as_posix()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return [
        f"wrote {file}",
        f"wrote {documents} documents ({size / 1e6:.1f} MB) into {source}/: texts that come with Python, and some junk",
        f"run it: gristmill run {file}",
    ]
