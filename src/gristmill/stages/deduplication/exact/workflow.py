"""The former path of `gristmill.workflows.exact`, which stays valid."""

from gristmill.lazy import names_of

__getattr__ = names_of("gristmill.workflows.exact")
