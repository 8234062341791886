"""Reading and writing documents: JSONL and Parquet, here or on any storage that fsspec knows."""

from gristmill.stages.text.io.reader import DocumentReader, JsonlReader, ParquetReader
from gristmill.stages.text.io.writer import JsonlWriter, ParquetWriter

__all__ = ["DocumentReader", "JsonlReader", "JsonlWriter", "ParquetReader", "ParquetWriter"]
