"""The runtime of a set that is being deleted, and whose nodes have writes that no store has: without a pod
there nobody uploads them, so it is made again when somebody has deleted it, or scaled it down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain import names
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetSpec
from dataset_controller.domain.sampleset.policies.admission import admit
from dataset_controller.domain.sampleset.policies.ownership import ours
from dataset_controller.domain.sampleset.policies.staging import partitions_to_upload
from paddlewheel.contracts.objects import key_of, spec_of
from paddlewheel.operator.domain.plan import Action, Create, Patch


@dataclass(frozen=True)
class KeptRuntime:
    """What to do. `obstacle`: why there can be no runtime, with the remedy."""

    actions: tuple[Action, ...] = ()
    obstacle: str = ""


def keep_runtime(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> KeptRuntime:
    """A pod for each partition, and for each that has left writes behind; nothing while the reports are not
    known, for there may be no such writes. Its Secrets are those of any set that waits."""
    own = seen.sample_set
    if not seen.are_records_known:
        return KeptRuntime()
    seen = replace(seen, children=ours(seen.children, own.uid))
    count = partitions_to_upload(seen, now)
    runtime = seen.children.stateful_set
    if runtime is not None:
        is_small = int(spec_of(runtime).get("replicas", 1)) < count
        change = {"spec": {"replicas": count}}
        return KeptRuntime((Patch(names.STATEFUL_SET, key_of(runtime), change),) if is_small else ())
    if own.spec is None:
        return KeptRuntime(obstacle=own.problem.message if own.problem else "")
    admission = admit(seen, own.spec)
    if admission.problem is not None or admission.secrets is None:
        return KeptRuntime(obstacle=admission.problem.message if admission.problem else "")
    return KeptRuntime(_create(seen, own.spec, config, count))


def _create(seen: ObservedSet, spec: SetSpec, config: RuntimeConfig, count: int) -> tuple[Action, ...]:
    identity = seen.sample_set.identity
    manifest = render.stateful_set(identity, spec, config)
    manifest["spec"]["replicas"] = count
    runtime = Create(names.STATEFUL_SET, manifest)
    if seen.children.service is not None:
        return (runtime,)
    return (Create(names.SERVICE_KIND, render.service(identity)), runtime)
