"""Why a job failed, in a message that spares looking for the pod's log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from job_controller.core.pods import Failure, Pod
from job_controller.timing import END_REPORT_GRACE_SECONDS


def first_failures(pods: Iterable[Pod]) -> tuple[tuple[Pod, Failure], ...]:
    """The earliest failures, all within a second: others usually follow from them."""
    failures = [(pod, pod.failure) for pod in pods if pod.failure is not None]
    first = min((at for pod, _ in failures if (at := pod.failed_at)), default=None)
    if first is None:
        return tuple(failures)
    until = first + timedelta(seconds=END_REPORT_GRACE_SECONDS)
    return tuple(each for each in failures if (at := each[0].failed_at) and at <= until)


def failure_message(failure: Failure) -> str:
    """Pod, container unless it is the first, reason, exit code and last line."""
    code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    line = f": {failure.last_line}" if failure.last_line else ""
    where = f" in container {failure.container}" if failure.container else ""
    return f"pod {failure.pod} failed{where} ({failure.reason}{code}){line}"
