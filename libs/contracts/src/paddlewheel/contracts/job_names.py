"""Names of a PaddleJob's objects and annotations that other programs than job-controller use."""

from __future__ import annotations

RESTART = "paddlepaddle.org/restart"
"""The annotation of a PaddleJob that restarts it: a time. When its value changes, all pods are replaced."""


def kept_logs_name(job: str) -> str:
    """The name of the ConfigMap that keeps the last lines of a finished job's pods after their deletion.

    Its keys are the names of the pods.
    """
    return f"{job}.kept-logs"
