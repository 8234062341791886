"""Reading documents from files."""

from gristmill.stages.text.io.reader.documents import DocumentReader
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.stages.text.io.reader.parquet import ParquetReader

__all__ = ["DocumentReader", "JsonlReader", "ParquetReader"]
