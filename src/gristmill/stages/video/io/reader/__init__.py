"""Reading videos: folders, files and manifests."""

from gristmill.lazy import names_in

_FILES: dict[str, str] = {}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
