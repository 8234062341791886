"""The options of a stage that may be written beside its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.secrets import public_url

STORAGE = "storage_options"
ENDPOINT = "endpoint_url"
CLIENT = "client_kwargs"


def public(options: Mapping[Any, Any]) -> dict[Any, Any]:
    """Options without those of a storage, which hold keys and tokens; the address of the storage stays.

    New credentials do not make another pipeline: a run resumes with them.
    """
    return {key: _place(value) if key == STORAGE else value for key, value in options.items()}


def _place(options: Any) -> Any:
    if not isinstance(options, Mapping):
        return None
    place = _address(options)
    client = options.get(CLIENT)
    if isinstance(client, Mapping) and ENDPOINT in client:
        place[CLIENT] = _address(client)
    return place


def _address(options: Mapping[Any, Any]) -> dict[Any, Any]:
    if ENDPOINT not in options:
        return {}
    url = options[ENDPOINT]
    return {ENDPOINT: public_url(url) if isinstance(url, str) else url}
