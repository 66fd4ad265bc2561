"""All metrics of this service. Label values are closed sets; objects are never named."""

from __future__ import annotations

from opentelemetry.metrics import Meter

NAMES = (
    "paddlewheel_cache_chunks",
    "paddlewheel_cache_files",
    "paddlewheel_cache_bytes",
    "paddlewheel_cache_files_failed",
    "paddlewheel_cache_runs_ended",
    "paddlewheel_cache_mounts",
)


class Metrics:
    """Counters of the work of this agent."""

    def __init__(self, meter: Meter) -> None:
        self._chunks = meter.create_counter(NAMES[0], description="Chunks finished by this agent")
        self._files = meter.create_counter(NAMES[1], description="Files finished by this agent")
        self._bytes = meter.create_counter(NAMES[2], unit="By", description="Bytes finished by this agent")
        self._failed = meter.create_counter(NAMES[3], description="Files that failed on this agent")
        self._ended = meter.create_counter(NAMES[4], description="Runs that this agent led to their end")
        self._mounts = meter.create_counter(NAMES[5], description="Changes of the mount: mounted, lost")

    def chunk_done(self, operation: str, files: int, size: int, failed: int) -> None:
        """A chunk was recorded. `operation`: sync, warmup, remove or clear."""
        labels = {"operation": operation}
        self._chunks.add(1, labels)
        self._files.add(files, labels)
        self._bytes.add(size, labels)
        self._failed.add(failed, labels)

    def run_ended(self, operation: str, phase: str) -> None:
        """`phase`: the last word of RunPhase, in lower case."""
        self._ended.add(1, {"operation": operation, "phase": phase})

    def mount_changed(self, *, mounted: bool) -> None:
        """The mount came or went."""
        self._mounts.add(1, {"change": "mounted" if mounted else "lost"})
