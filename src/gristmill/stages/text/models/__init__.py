"""Stages that run models: tokenize on CPUs, then compute on GPUs or CPUs."""

from gristmill.stages.text.models.model import ModelStage
from gristmill.stages.text.models.tokenizer import TokenizerStage

__all__ = ["ModelStage", "TokenizerStage"]
