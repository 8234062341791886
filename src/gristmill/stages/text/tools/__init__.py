"""Stages that give documents ids, split them and join them."""

from gristmill.stages.text.tools.add_id import AddId
from gristmill.stages.text.tools.joiner import DocumentJoiner
from gristmill.stages.text.tools.splitter import DocumentSplitter

__all__ = ["AddId", "DocumentJoiner", "DocumentSplitter"]
