"""Two runs compared: configuration, input, versions, documents, speed, and documents that changed sides."""

from gristmill.report.changes.compare import compared
from gristmill.report.changes.page import page_of
from gristmill.report.changes.text import text_of

__all__ = ["compared", "page_of", "text_of"]
