"""Reading documents from files."""

from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.stages.text.io.reader.parquet import ParquetReader

__all__ = ["JsonlReader", "ParquetReader"]
