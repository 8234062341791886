"""Images as an Arrow table: encoded bytes, captions and metadata."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.tasks.document import DocumentBatch

IMAGE = "image"
"""The column of the encoded bytes of each image, as they were read."""
IMAGE_ID = "image_id"
"""The column of the user's name of each image: its key in a shard, its path in a folder, or its id in a table."""
CAPTION = "caption"
"""The column of the captions. Null where an image has none."""


@dataclass(repr=False)
class ImageBatch(DocumentBatch):
    """A batch of images, one per row, with everything that is known of them as columns.

    An image is a document with a column of encoded bytes (`IMAGE`). So whatever takes documents takes images too:
    filters on captions and scores, accounts, excluded images, deduplication. Pixels are not kept in the table: stages
    decode them when they need them (`gristmill.images.Pictures`), and the bytes stay those that were read unless a
    stage sets the column.
    """
