"""Writing documents to files."""

from gristmill.stages.text.io.writer.jsonl import JsonlWriter
from gristmill.stages.text.io.writer.parquet import ParquetWriter

__all__ = ["JsonlWriter", "ParquetWriter"]
