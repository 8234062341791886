"""Stages that give documents ids, split them and join them."""

from gristmill.stages.text.tools.add_id import AddId
from gristmill.stages.text.tools.segments import DocumentJoiner, DocumentSplitter

__all__ = ["AddId", "DocumentJoiner", "DocumentSplitter"]
