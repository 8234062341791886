"""The base class of filters of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.images.pictures import Pictures, cache_key
from gristmill.lazy import Array
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

__all__ = ["ImageFilter"]


class ImageFilter(DocumentFilter):
    """Scores images and decides which to keep, in the stages `ScoreFilter`, `Score` and `Filter`.

        class DarkFilter(ImageFilter):
            def score_pictures(self, pictures: Pictures) -> Array:
                return np.array([pixels.mean() for pixels in pictures.pixels])

            def keep_document(self, score: float) -> bool:
                return score >= 20

    It reads the column "image" unless the stage names another one. Images that cannot be read are removed before they
    are scored, and reported as bad records. The score of an image is a number, never NaN. Results depend on the image
    alone.
    """

    default_field = IMAGE
    reads_texts = False
    needs_pixels: bool = True
    """Whether it looks at pixels. Headers and sizes are known without decoding the image."""

    def score_pictures(self, pictures: Pictures) -> Array:
        """Return a score for each picture."""
        raise NotImplementedError

    def _check_scores(self) -> None:
        if type(self).score_pictures is ImageFilter.score_pictures:
            raise TypeError(f"{type(self).__name__} does not define score_pictures: a filter of images needs it.")

    def score_document(self, text: str) -> Any:
        raise TypeError(f"{self.name!r} scores images, not texts: name the column of the images.")

    def without_unreadable(self, batch: DocumentBatch, field: str) -> DocumentBatch:
        return Pictures.of(batch, field, self.needs_pixels)[0]

    def contents_of(self, batch: DocumentBatch, field: str) -> Pictures:
        return Pictures.of(batch, field, pixels=False)[1]

    def contents_key(self, field: str) -> str:
        return cache_key(field)

    def unreadable_in(self, contents: Any) -> Mapping[int, str]:
        unreadable: Mapping[int, str] = contents.decode() if self.needs_pixels else {}
        return unreadable

    def score_contents(self, contents: Any) -> Array:
        return self.score_pictures(contents)
