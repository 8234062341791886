"""Reading and writing documents: JSONL and Parquet, here or on any storage that fsspec knows."""

from gristmill.stages.text.io.reader import JsonlReader, ParquetReader
from gristmill.stages.text.io.writer import JsonlWriter, ParquetWriter

__all__ = ["JsonlReader", "JsonlWriter", "ParquetReader", "ParquetWriter"]
