"""Words the originals let through and treated as another: accepted as ever, but the user is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from job_controller.domain import names
from job_controller.domain.model import Job, Network
from job_controller.domain.policies.clean_up import is_known_policy


@dataclass(frozen=True)
class UnknownWord:
    """A condition to show; `message` names the field, what it means now, and the legal words."""

    condition: str
    message: str


def unknown_words(job: Job) -> Iterator[UnknownWord]:
    """Every word of the spec that means something else than it says."""
    if job.spec.intranet and job.spec.intranet not in {n.value for n in Network}:
        message = (
            f"spec.intranet: {job.spec.intranet!r} is unknown and means PodIP; use PodIP, Service or Host"
        )
        yield UnknownWord(names.CONDITION_NETWORK_WORD, message)
    if not is_known_policy(job.spec.clean_pod_policy):
        message = (
            f"spec.cleanPodPolicy: {job.spec.clean_pod_policy!r} is unknown and means Never; "
            "use Always, Never, OnFailure or OnCompletion"
        )
        yield UnknownWord(names.CONDITION_CLEAN_WORD, message)
