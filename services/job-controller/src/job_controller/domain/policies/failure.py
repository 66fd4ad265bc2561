"""Why a job failed, in a message that spares looking for the pod's log."""

from __future__ import annotations

from collections.abc import Iterable

from job_controller.domain.pods import Failure, Pod


def first_failure(pods: Iterable[Pod]) -> Failure | None:
    """The earliest failure: the others usually follow from it."""
    failures = [p.failure for p in pods if p.failure is not None]
    return min(failures, key=failure_order, default=None)


def failure_order(failure: Failure) -> tuple[str, str]:
    """Sorts failures from the earliest on; those without a time come last."""
    return failure.finished_at or "~", failure.pod


def failure_message(failure: Failure) -> str:
    """Pod, reason, exit code and last line."""
    code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    line = f": {failure.last_line}" if failure.last_line else ""
    return f"pod {failure.pod} failed ({failure.reason}{code}){line}"
