"""Captions of images by a language model."""

from __future__ import annotations

import pyarrow as pa
from tests.llm.conftest import quick_server

from gristmill.image import ImageBatch, LLMCaption
from gristmill.stages.asynchronous import BlockingStage
from gristmill.tasks.document import ID
from gristmill.text import Endpoint

__all__ = ["quick_server"]
PNG, JPEG = b"\x89PNG" + b"0" * 20, b"\xff\xd8" + b"1" * 20


def test_each_image_gets_a_caption_and_one_without_pixels_goes_to_quarantine(quick_server):
    stage = LLMCaption(Endpoint("m", quick_server.base_url), prompt="REPLY<<a {{ image_id }}>>", output="text")
    (inner,) = stage.flatten()
    images = pa.array([PNG, None, JPEG], pa.large_binary())
    table = pa.table({ID: ["x#0", "x#1", "x#2"], "image": images, "image_id": ["p", "q", "r"]})
    blocking = BlockingStage(inner)
    made = blocking.process(ImageBatch(table))
    inner.teardown()
    blocking.close()
    assert isinstance(made, ImageBatch) and made.data["text"].to_pylist() == ["a p", "a r"]
    assert [(bad.position, bad.reason) for bad in made.take_account().bad] == [(1, "there is no image")]
    assert inner.output_type() is ImageBatch and inner.columns_needed() == ["image", "image_id"]


def test_images_are_sent_as_data_and_different_images_are_different_requests(quick_server):
    calls = quick_server.log()["calls"]
    stage = LLMCaption(Endpoint("m", quick_server.base_url), output="text").flatten()[0]
    images = pa.array([PNG, JPEG, PNG + b"2", PNG], pa.large_binary())
    blocking = BlockingStage(stage)
    blocking.process(ImageBatch(pa.table({ID: list("abcd"), "image": images})))
    stage.teardown()
    blocking.close()
    assert quick_server.log()["calls"] - calls == 3
    frames = ImageBatch(pa.table({ID: ["a"], "image": pa.array([[PNG, JPEG]], pa.large_list(pa.large_binary()))}))
    request = stage.asking.request({"image": frames.data["image"][0].as_py()}, "prompt")
    kinds = [part["image_url"]["url"][:15] for part in request.messages[0]["content"][:-1]]
    assert kinds == ["data:image/png;", "data:image/jpeg"]
