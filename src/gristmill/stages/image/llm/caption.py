"""Captions of images by a language model that sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.hints import TaskType
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.llm.models import ChatModel
from gristmill.stages.text.llm.stage import LLMStage
from gristmill.tasks.image import CAPTION, IMAGE, ImageBatch

PROMPT = (
    "Describe this image in two to four sentences: what it shows, where, and what happens. Name colours, numbers, and "
    "text that can be read. Do not guess what cannot be seen, and do not mention that it is an image."
)


@builtin
@dataclass(eq=False, repr=False)
class LLMCaption(CompositeStage[ImageBatch, ImageBatch]):
    """Caption images, or clips by their frames.

        LLMCaption(Endpoint("a-vision-model", "http://127.0.0.1:8000/v1"))

    - ``prompt``: a template over the columns of an image: ``Describe this image. Its old caption: {{ caption }}``.
    - ``output``: the column of the caption.
    - ``image_field``: the column of encoded images, or of lists of them.
    - ``schema``, ``columns``, ``parameters``, ``budget``, ``cache``, ``cache_size``: as `LLMStage` has them.

    An image without a usable answer goes to quarantine.
    """

    indifferent = ("budget", "cache", "cache_size")

    model: ChatModel
    _: KW_ONLY
    prompt: str = PROMPT
    output: str | None = CAPTION
    image_field: str = IMAGE
    schema: Any = None
    columns: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None
    cache: str | bool = True
    cache_size: int | str | None = None

    def __post_init__(self) -> None:
        self.decompose()  # wrong arguments are errors here

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stage = ImageLLMStage(
            self.model,
            self.prompt,
            output=self.output,
            image_field=self.image_field,
            schema=self.schema,
            columns=self.columns,
            parameters=self.parameters,
            budget=self.budget,
            cache=self.cache,
            cache_size=self.cache_size,
        )
        stage.name = f"{self.name} model"
        return [stage]


@builtin_internal
class ImageLLMStage(LLMStage):
    """`LLMStage` for images."""

    def input_type(self) -> TaskType | None:
        return ImageBatch

    def output_type(self) -> TaskType | None:
        return ImageBatch
