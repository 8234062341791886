"""Running pipelines on Ray Data."""

from gristmill.backends.ray_data.executor import RayDataExecutor

__all__ = ["RayDataExecutor"]
