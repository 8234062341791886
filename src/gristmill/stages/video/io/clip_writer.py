"""The path of the writer of clips in NeMo Curator, which is valid here too."""

from gristmill.stages.video.io.writer.clip_writer import ClipWriterStage

__all__ = ["ClipWriterStage"]
