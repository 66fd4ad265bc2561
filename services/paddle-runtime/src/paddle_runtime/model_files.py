"""Gets the model onto this machine: from a mounted directory, or from a store through the cache."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddle_runtime.cache import Entry, ModelCache
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.directory import directory_digest, file_names
from paddle_runtime.domain.files import ModelFault, ModelFiles, check_digest, choose
from paddle_runtime.domain.location import Directory, locate
from paddle_runtime.lifecycle import Lifecycle, Phase
from paddle_runtime.ports import FileStore
from paddle_runtime.stores import S3Files
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry, Unavailable

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ModelOnDisk:
    """`entry` is what keeps a cached model from being removed; None for a mounted one."""

    directory: Path
    files: ModelFiles
    entry: Entry | None = None


async def obtain(settings: PaddleRuntimeSettings, lifecycle: Lifecycle, clock: Clock) -> ModelOnDisk:
    """The model, verified.

    Raises:
        ModelFault: it cannot be had.
        Retry: for `fetch_timeout` seconds the store sent nothing, or another replica was waited for.
    """
    place = locate(settings.model_uri, settings.store_endpoint)
    if isinstance(place, Directory):
        return await asyncio.to_thread(_mounted, Path(place.path), settings.model_digest)
    cache = ModelCache(settings.cache_dir, settings.max_cache)
    entry = await _fetched(cache, S3Files(place, settings), settings, lifecycle, clock)
    log.info("model on disk", directory=str(entry.directory), digest=entry.digest, fetched=entry.fetched)
    return ModelOnDisk(entry.directory, choose(file_names(entry.directory)), entry)


def _mounted(directory: Path, digest: str) -> ModelOnDisk:
    try:
        files = choose(file_names(directory))
        if digest:
            check_digest(directory_digest(directory), digest)
    except OSError as error:
        raise ModelFault("ModelUnreadable", f"{error.filename}: {error.strerror}") from error
    return ModelOnDisk(directory, files)


async def _fetched(
    cache: ModelCache,
    store: FileStore,
    settings: PaddleRuntimeSettings,
    lifecycle: Lifecycle,
    clock: Clock,
) -> Entry:
    """Retry until the timeout, which begins again when a store sent data: that data is kept."""
    backoff = Backoff[str](0.5, 15.0, jitter=0.2)
    deadline = clock.monotonic() + settings.fetch_timeout
    while True:
        received = cache.received
        try:
            return await cache.get(store, settings.model_uri, settings.model_digest)
        except Retry as error:
            _report(lifecycle, error)
            if isinstance(error, Unavailable) and cache.received > received:
                backoff.reset("store")
                deadline = clock.monotonic() + settings.fetch_timeout
            if clock.monotonic() >= deadline:
                raise
            wait = backoff.next("store") if error.after is None else error.after
        await clock.sleep(wait)


def _report(lifecycle: Lifecycle, error: Retry) -> None:
    """Log an error unless it is the same as before."""
    if lifecycle.reason != str(error):
        log.warning("model is not here yet, trying again", error=str(error))
    lifecycle.enter(Phase.DOWNLOADING, str(error))
