"""Names of a PaddleJob's objects and annotations that others than job-controller use."""

from __future__ import annotations

RESTART = "paddlepaddle.org/restart"
"""Annotation of a PaddleJob: a time; whenever its value changes, all pods are made anew."""


def kept_logs_name(job: str) -> str:
    """The ConfigMap with the last lines of a finished job's pods, by pod, once these are deleted."""
    return f"{job}.kept-logs"
