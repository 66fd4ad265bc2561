"""What may be used of a set's spec: its directories are lent, its Secrets are valid, its caches stay."""

from __future__ import annotations

from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec
from dataset_controller.domain.sampleset.policies.children import (
    find_moved_cache,
    find_old_layout,
    find_unmountable,
)
from dataset_controller.domain.sampleset.policies.runtime_secret import (
    SetSecrets,
    read_secrets,
    unread_keys_of,
)


@dataclass(frozen=True)
class Admission:
    """What may be used of the spec. `secrets` is None, with a problem, while they are invalid; beside them, a
    problem keeps the template of runtime pods as it is. `remark`: on what has no effect."""

    spec: SetSpec
    secrets: SetSecrets | None
    problem: Problem | None = None
    remark: str = ""


def admit(seen: ObservedSet, spec: SetSpec) -> Admission:
    """A Secret that becomes invalid later, or a directory that is no longer lent, stops nothing that runs."""
    if problem := seen.sample_set.problem:
        return Admission(spec, None, problem)
    if problem := seen.unserved or find_old_layout(seen) or find_unmountable(seen, spec):
        return Admission(spec, None, problem)
    try:
        secrets = read_secrets(seen, spec)
        return Admission(spec, secrets, find_moved_cache(seen, spec), unread_keys_of(spec, secrets))
    except Invalid as invalid:
        return Admission(spec, None, invalid.problem)
