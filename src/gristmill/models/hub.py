"""Files of repositories on the Hugging Face hub, by the package huggingface_hub and its cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError

if TYPE_CHECKING:
    from gristmill.models.checkpoint import Checkpoint


def snapshot(checkpoint: Checkpoint, patterns: Sequence[str], local_files_only: bool) -> Path:
    """Return the folder of a repository in the cache; it is downloaded unless ``local_files_only``."""
    hub = _package(checkpoint)
    repository, revision = _parts(checkpoint)
    try:
        return Path(
            hub.snapshot_download(
                repository,
                revision=revision,
                cache_dir=checkpoint.cache_dir,
                token=checkpoint.token,
                allow_patterns=list(patterns),
                local_files_only=local_files_only,
            )
        )
    except Exception as error:  # errors of the hub, of HTTP and of the network have no common base
        raise _explained(checkpoint, error) from None


def one_file(checkpoint: Checkpoint, name: str) -> Path | None:
    """Return one file of a repository; None if the repository does not have it."""
    found = cached_file(checkpoint, name)
    if found is not None:
        return found
    hub = _package(checkpoint)
    repository, revision = _parts(checkpoint)
    errors: Any = hub.errors
    try:
        return Path(
            hub.hf_hub_download(
                repository, name, revision=revision, cache_dir=checkpoint.cache_dir, token=checkpoint.token
            )
        )
    except errors.LocalEntryNotFoundError as error:
        if cached_file(checkpoint, "config.json") is not None or cached_file(checkpoint, "adapter_config.json"):
            return None  # offline, and the repository is there without this file
        raise _explained(checkpoint, error) from None
    except errors.EntryNotFoundError:
        return None
    except Exception as error:  # as above
        raise _explained(checkpoint, error) from None


def cached_file(checkpoint: Checkpoint, name: str) -> Path | None:
    """Return one file of a repository if it is in the cache."""
    hub = _package(checkpoint)
    repository, revision = _parts(checkpoint)
    found = hub.try_to_load_from_cache(repository, name, cache_dir=checkpoint.cache_dir, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _parts(checkpoint: Checkpoint) -> tuple[str, str | None]:
    repository, _, revision = checkpoint.name.partition("@")
    return repository, revision or None


def _package(checkpoint: Checkpoint) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise ModelError(
            f"{checkpoint.title} is on the Hugging Face hub, and the package huggingface-hub is not installed.\n"
            "    pip install 'gristmill[models]', or name a folder that has the checkpoint."
        ) from None
    return huggingface_hub


def _explained(checkpoint: Checkpoint, error: Exception) -> ModelError:
    """Return the error for people: what is wrong, and how to get the model."""
    import huggingface_hub.errors as errors

    repository, revision = _parts(checkpoint)
    get = f"hf download {repository}" + (f" --revision {revision}" if revision else "")
    get += f" --cache-dir {checkpoint.cache_dir}" if checkpoint.cache_dir else ""
    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"{checkpoint.title} is gated, and you have no access to it.\n"
            f"    ask for access at https://huggingface.co/{repository}, then run 'hf auth login' or set HF_TOKEN."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelError(f"{checkpoint.title}: the repository {repository} has no revision {revision!r}.")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelError(
            f"{checkpoint.title}: there is no such repository on the Hugging Face hub, or it is private.\n"
            "    check the name; for a private one run 'hf auth login' or set HF_TOKEN. A folder begins with './'."
        )
    if isinstance(error, errors.HFValidationError):
        return ModelError(f"{checkpoint.title}: this is neither a folder nor the name of a repository ({error}).")
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return ModelError(
            f"{checkpoint.title} is not in the cache, and the Hugging Face hub cannot be reached or HF_HUB_OFFLINE "
            f"is set.\n    where there is a network: {get}, or copy the checkpoint into a folder and name that."
        )
    reason = str(error).strip().partition("\n")[0]
    return ModelError(
        f"{checkpoint.title} cannot be fetched: {type(error).__name__}: {reason}\n"
        f"    try again, or fetch it first: {get}"
    )
