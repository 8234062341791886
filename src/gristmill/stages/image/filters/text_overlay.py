"""A filter of images with text in them: captions, watermarks, screenshots, scanned pages."""

from __future__ import annotations

import importlib.util
from typing import Any

from gristmill.errors import PlanError
from gristmill.images.pictures import Pictures
from gristmill.lazy import Array, np
from gristmill.stages.image.filters.base import ImageFilter
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtMost

__all__ = ["TextOverlayFilter"]

LONG_SIDE = 512
"""Images are reduced to this before the detector sees them."""
LEAST_SCORE = 0.8
LEAST_CHARACTERS = 2
"""A line that the detector finds counts if so many characters are read in it, with this probability. The detector alone
takes most objects on a plain background for text."""


@builtin
class TextOverlayFilter(ImageFilter, AtMost):
    """Keeps images of which lines of text cover at most ``max_share`` of the area.

    The lines are found by the models in the package rapidocr (PP-OCRv6, the weights are in the package), on the CPU
    with ONNX Runtime, in the image reduced to 512 pixels. A line counts if at least two characters are read in it with
    a probability of 0.8. Needs ``pip install 'gristmill[ocr]'``.
    """

    rule_text = "text on at most {0.percent} of the area"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.1) -> None:
        self.most = max_share
        self._model: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_model": None}

    def check_needs(self) -> None:
        for name in ("rapidocr", "onnxruntime"):
            if importlib.util.find_spec(name) is None:
                raise PlanError(f"TextOverlayFilter needs the package {name}: pip install 'gristmill[ocr]'")

    def setup(self) -> None:
        if self._model is None:
            self.check_needs()
            from rapidocr import RapidOCR

            one_thread = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
            reduced = {"Det.limit_type": "max", "Det.limit_side_len": LONG_SIDE}
            self._model = RapidOCR(params={"Global.log_level": "error", **one_thread, **reduced})

    def score_pictures(self, pictures: Pictures) -> Array:
        self.setup()
        return pictures.measured(self.text_share)

    def text_share(self, pixels: Array) -> float:
        """Return the share of the area that lines of text cover. `setup` comes first."""
        found = self._model(np.ascontiguousarray(pixels[:, :, ::-1]), use_cls=False, text_score=LEAST_SCORE)
        if found.boxes is None or found.txts is None:
            return 0.0
        x, y = found.boxes[..., 0], found.boxes[..., 1]
        areas = np.abs((x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1)) / 2
        is_text = [len(text.strip()) >= LEAST_CHARACTERS for text in found.txts]
        return min(1.0, float(areas[is_text].sum()) / (pixels.shape[0] * pixels.shape[1]))
