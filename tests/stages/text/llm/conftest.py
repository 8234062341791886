"""The latency server for tests of stages."""

from tests.llm.conftest import quick_server, start_server

__all__ = ["quick_server", "start_server"]
