"""Images: headers, pixels, and what is computed from them. Knows nothing of stages."""

from gristmill.images.errors import BadImage

__all__ = ["BadImage"]
