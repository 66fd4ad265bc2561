"""The resources of all pods of a gang together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from job_controller.core.job import Job
from paddlewheel.contracts.quantities import amount, quantity


def least_resources(job: Job) -> dict[str, str]:
    """Quantities by resource: the values of the user, else the sum over all containers of the pods that the
    job cannot do without."""
    policy = job.spec.scheduling_policy
    if policy is not None and policy.min_resources is not None:
        return {name: str(value) for name, value in policy.min_resources.items()}
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for name, needed in _needs(job):
        total[name] += needed
    return {name: quantity(total[name]) for name in sorted(total)}


def _needs(job: Job) -> Iterator[tuple[str, Fraction]]:
    for role in job.roles:
        for container in (role.template.get("spec") or {}).get("containers") or ():
            for name, value in _asked(container).items():
                # What is no quantity stops the pods themselves, in the API server's words.
                with suppress(ValueError):
                    yield name, amount(value) * job.least_of(role.name)


def _asked(container: Mapping[str, Any]) -> Mapping[str, int | str]:
    """Requests, or limits where there are none: Kubernetes makes them requests then."""
    resources = container.get("resources") or {}
    return resources.get("requests") or resources.get("limits") or {}


def are_equal(one: Mapping[str, int | str], other: Mapping[str, int | str]) -> bool:
    """The same amounts, however they are written: Volcano writes them its own way."""
    try:
        return {n: amount(v) for n, v in one.items()} == {n: amount(v) for n, v in other.items()}
    except ValueError:
        return False
