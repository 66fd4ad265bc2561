"""Why a job failed, in a message that spares looking for the pod's log."""

from __future__ import annotations

from collections.abc import Iterable

from job_controller.domain.pods import Failure, Pod


def first_failures(pods: Iterable[Pod]) -> tuple[tuple[Pod, Failure], ...]:
    """The earliest failures, all of the same second: others usually follow from them."""
    failures = [(pod, pod.failure) for pod in pods if pod.failure is not None]
    first = min((_time(failure) for _, failure in failures), default="")
    return tuple((pod, failure) for pod, failure in failures if _time(failure) == first)


def failure_order(failure: Failure) -> tuple[str, str]:
    """Sorts failures from the earliest on; those without a time come last."""
    return _time(failure), failure.pod


def _time(failure: Failure) -> str:
    return failure.finished_at or "~"


def failure_message(failure: Failure) -> str:
    """Pod, container unless it is the first, reason, exit code and last line."""
    code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    line = f": {failure.last_line}" if failure.last_line else ""
    where = f" in container {failure.container}" if failure.container else ""
    return f"pod {failure.pod} failed{where} ({failure.reason}{code}){line}"
