"""The runtime of a set that is being deleted while pods use it, or while nodes have writes that no store has.

Without the runtime, mounts are dead and nothing is uploaded. It is created or scaled again when it was
deleted or scaled down, and when a new user came while it was being removed. Its pods are the same as those of
any set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain import names
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetSpec
from dataset_controller.domain.sampleset.policies.admission import admit
from dataset_controller.domain.sampleset.policies.children import decide_template
from dataset_controller.domain.sampleset.policies.staging import partitions_to_upload
from dataset_controller.domain.sampleset.runtime import startable
from paddlewheel.contracts.objects import Object, key_of, spec_of
from paddlewheel.operator.domain.plan import Action, Create, Patch


@dataclass(frozen=True)
class KeptRuntime:
    """The actions. `obstacle`: why there can be no runtime, and what to do."""

    actions: tuple[Action, ...] = ()
    obstacle: str = ""


def keep_runtime(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> KeptRuntime:
    """A pod for each partition, and for each that has left writes behind. Its Secrets are those of any set
    that waits."""
    own = seen.sample_set
    if not _is_needed(seen) or (seen.is_in_old_place and seen.users):
        return KeptRuntime()
    count = startable(seen, partitions_to_upload(seen, now))
    if seen.children.stateful_set is not None and not seen.is_in_old_place:
        return KeptRuntime(_update(seen, seen.children.stateful_set, config, count))
    spec, obstacle = own.spec, find_obstacle(seen)
    if spec is None or obstacle or seen.is_in_old_place:
        return KeptRuntime(obstacle=obstacle)
    return KeptRuntime(_create(seen, spec, config, count))


def find_obstacle(seen: ObservedSet) -> str:
    """Why no runtime can be created at present, "" when one can."""
    own = seen.sample_set
    problem = own.problem if own.spec is None else admit(seen, own.spec).problem
    return problem.message if problem else ""


def _is_needed(seen: ObservedSet) -> bool:
    """Users of what was never mounted have no mount to lose. While the reports are not known, there may be no
    writes."""
    return seen.status.was_mounted if seen.users else seen.are_records_known


def _update(seen: ObservedSet, runtime: Object, config: RuntimeConfig, count: int) -> tuple[Action, ...]:
    """A bad image, or one that is gone, may be the very reason why the set still waits."""
    is_small = int(spec_of(runtime).get("replicas", 1)) < count
    change = {"spec": {"replicas": count}}
    scaling = (Patch(names.STATEFUL_SET, key_of(runtime), change),) if is_small else ()
    spec = seen.sample_set.spec
    if spec is None or admit(seen, spec).secrets is None:
        return scaling
    return (*scaling, *decide_template(seen, spec, config))


def _create(seen: ObservedSet, spec: SetSpec, config: RuntimeConfig, count: int) -> tuple[Action, ...]:
    identity = seen.sample_set.identity
    runtime = Create(names.STATEFUL_SET, render.stateful_set(identity, seen.runtime, spec, config, count))
    if seen.children.service is not None:
        return (runtime,)
    return (Create(names.SERVICE_KIND, render.service(identity, seen.runtime)), runtime)
