"""The former path of `gristmill.workflows.semantic`, which stays valid."""

from gristmill.lazy import names_of

__getattr__ = names_of("gristmill.workflows.semantic")
