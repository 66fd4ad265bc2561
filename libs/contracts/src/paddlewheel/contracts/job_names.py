"""Names of a PaddleJob's objects that others than job-controller read."""

from __future__ import annotations


def kept_logs_name(job: str) -> str:
    """The ConfigMap with the last lines of a finished job's pods, by pod, once these are deleted."""
    return f"{job}.kept-logs"
