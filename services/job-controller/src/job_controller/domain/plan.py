"""The pure decision: from what is observed to what is to be done. All branching of the service is here
and in `policies/`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from job_controller.domain import names
from job_controller.domain.environment import config_data
from job_controller.domain.model import (
    Child,
    ChildKind,
    ChildRef,
    Job,
    Network,
    Note,
    Observed,
    Options,
    Plan,
    Pod,
    PodId,
)
from job_controller.domain.policies.clean_up import deletes_children
from job_controller.domain.policies.dataset_gate import Gate, decide_gate
from job_controller.domain.policies.host_ports import base_port
from job_controller.domain.policies.release import pods_to_release
from job_controller.domain.policies.scaling import is_growth, missing_pods, surplus_pods
from job_controller.domain.policies.validation import find_problems
from job_controller.domain.render import Frame, render_config_map, render_pod, render_service
from job_controller.domain.status import active_status, deleted_status, refused_status, with_condition
from paddlewheel.contracts.conditions import Condition

_NO_PORTS = Gate(False, "HostPortsExhausted", "every block of host ports is taken; widen the port range")


@dataclass(frozen=True)
class Refusal:
    """A child that could not be created. `reason` is OwnedByAnother or the API server's word."""

    child: str
    reason: str
    message: str


def plan(seen: Observed, options: Options, now: datetime) -> Plan:
    """What to do about one job.

    A job that ends now is only recorded as ended; its children are cleaned up once that stands in the API
    server, so that a crash in between can never run it again.
    """
    job = seen.job
    if job.deleted_at is not None:
        return _plan_deletion(seen, now)
    if job.status.final:
        return _plan_finished(seen)
    if problems := find_problems(job):
        return Plan(refused_status(job, problems, now), notes=_refusal_notes(job, problems))
    return _plan_active(seen, options, now)


def conclude(
    seen: Observed, todo: Plan, refusals: tuple[Refusal, ...], options: Options, now: datetime
) -> Plan:
    """Fold in what the API server refused to create; the refusal is shown and tried again later."""
    if not refusals:
        return _unblocked(seen, todo, now)
    first = min(refusals, key=lambda r: r.child)
    condition = Condition(names.CONDITION_BLOCKED, "True", first.reason, f"{first.child}: {first.message}")
    note = Note("Warning", "Create", condition.message)
    known = any(
        c.type == condition.type and c.message == condition.message for c in seen.job.status.conditions
    )
    return replace(
        todo,
        status=with_condition(seen.job, todo.status, condition, now),
        notes=() if known else (note,),
        requeue_after=options.gate_recheck,
    )


def _unblocked(seen: Observed, todo: Plan, now: datetime) -> Plan:
    if seen.job.status.condition(names.CONDITION_BLOCKED) != "True":
        return todo
    condition = Condition(names.CONDITION_BLOCKED, "False", "ChildrenCreated")
    return replace(todo, status=with_condition(seen.job, todo.status, condition, now))


def _plan_deletion(seen: Observed, now: datetime) -> Plan:
    """Children go with their owner; what is left to do is to say so.

    While that has to wait for the bus, the pods are not left running: their owner goes only afterwards.
    """
    job = seen.job
    if names.FINALIZER not in job.finalizers:
        return Plan(job.status)
    is_held = job.status.phase == names.TERMINATING
    pods = [p for p in seen.pods if not p.terminating] if is_held else []
    return Plan(deleted_status(job, now), delete=_pod_refs(pods))


def _plan_finished(seen: Observed) -> Plan:
    """Nothing is ever created again; children go as the clean-up policy says."""
    job = seen.job
    status = replace(job.status, observed_generation=job.generation)
    if not deletes_children(job.spec.clean_pod_policy, status.phase):
        return Plan(status)
    pods = [p for p in seen.pods if not p.terminating]
    services = _service_refs(seen, seen.services)
    notes = (Note("Normal", "Deleted", f"deleted {_pods(len(pods))} of the finished job"),) if pods else ()
    return Plan(status, delete=(*_pod_refs(pods), *services), notes=notes)


def _plan_active(seen: Observed, options: Options, now: datetime) -> Plan:
    job = seen.job
    port = base_port(seen, options.port_range)
    gate = _NO_PORTS if port is None else _gate(seen)
    status = active_status(seen, gate, now)
    base = Plan(status, metadata=_metadata_patch(job, port))
    if port is None or not gate.is_open:
        return replace(base, notes=_gate_notes(job, gate), requeue_after=options.gate_recheck)
    if status.final:
        return replace(base, notes=_end_notes(base))
    return _with_children(base, seen, Frame(job, port, options, seen.sample_set))


def _gate(seen: Observed) -> Gate:
    return decide_gate(seen.job.spec, seen.job.status, len(seen.pods), seen.sample_set)


def _metadata_patch(job: Job, port: int | None) -> Mapping[str, Any] | None:
    patch: dict[str, Any] = {}
    if names.FINALIZER not in job.finalizers:
        patch["finalizers"] = [*job.finalizers, names.FINALIZER]
    on_host = job.spec.network is Network.HOST and port is not None
    if on_host and job.annotations.get(names.ANNOTATION_HOST_PORT) != str(port):
        patch["annotations"] = {names.ANNOTATION_HOST_PORT: str(port)}
    return patch or None


def _with_children(base: Plan, seen: Observed, frame: Frame) -> Plan:
    job = seen.job
    missing, surplus = missing_pods(job, seen.pods), surplus_pods(job, seen.pods)
    data = config_data(job, frame.port, seen.pods)
    return replace(
        base,
        create=(*_config_map(seen, data), *_services(seen, frame), *_new_pods(frame, missing)),
        delete=(*_pod_refs(surplus), *_surplus_services(seen)),
        config_patch=_config_patch(seen, data),
        release=() if data is None else pods_to_release(job, seen.pods, frame.options),
        notes=_scale_notes(job, missing, surplus),
    )


def _config_map(seen: Observed, data: Mapping[str, str] | None) -> tuple[Child, ...]:
    if data is None or seen.config is not None:
        return ()
    manifest = render_config_map(seen.job, data)
    return (Child(ChildKind.CONFIG_MAP, seen.job.key.name, manifest),)


def _config_patch(seen: Observed, data: Mapping[str, str] | None) -> Mapping[str, str | None] | None:
    """What must change in an existing ConfigMap; keys that are gone become None."""
    if data is None or seen.config is None or dict(seen.config) == data:
        return None
    gone: dict[str, str | None] = {k: None for k in seen.config if k not in data}
    return gone | {k: v for k, v in data.items() if seen.config.get(k) != v}


def _services(seen: Observed, frame: Frame) -> tuple[Child, ...]:
    manifests = (render_service(seen.job, p, frame.port) for p in _service_pods(seen.job))
    named = ((m["metadata"]["name"], m) for m in manifests)
    return tuple(Child(ChildKind.SERVICE, n, m) for n, m in named if n not in seen.services)


def _service_pods(job: Job) -> tuple[PodId, ...]:
    """Pods that are called by name; elsewhere nobody would use a Service."""
    return job.spec.pod_ids() if job.spec.network is Network.SERVICE else ()


def _new_pods(frame: Frame, missing: tuple[PodId, ...]) -> tuple[Child, ...]:
    roles = {r.role: r for r in frame.job.spec.roles}
    manifests = (render_pod(frame, roles[p.role], p.index) for p in missing)
    return tuple(Child(ChildKind.POD, m["metadata"]["name"], m) for m in manifests)


def _pod_refs(pods: Iterable[Pod]) -> tuple[ChildRef, ...]:
    return tuple(ChildRef(ChildKind.POD, p.name, p.uid) for p in pods)


def _surplus_services(seen: Observed) -> tuple[ChildRef, ...]:
    job = seen.job
    wanted = {names.pod_name(job.key.name, p.role, p.index) for p in _service_pods(job)}
    return _service_refs(seen, (n for n in seen.services if n not in wanted))


def _service_refs(seen: Observed, wanted: Iterable[str]) -> tuple[ChildRef, ...]:
    return tuple(ChildRef(ChildKind.SERVICE, n, seen.services[n]) for n in wanted)


def _gate_notes(job: Job, gate: Gate) -> tuple[Note, ...]:
    known = any(c.type == names.CONDITION_ADMITTED and c.reason == gate.reason for c in job.status.conditions)
    if known:
        return ()
    waiting = gate.reason == "SampleSetNotReady"
    return (Note("Normal", "Gated", gate.message) if waiting else Note("Warning", "Create", gate.message),)


def _refusal_notes(job: Job, problems: tuple[str, ...]) -> tuple[Note, ...]:
    if job.status.observed_generation == job.generation:
        return ()
    return (Note("Warning", "Create", "; ".join(problems)),)


def _end_notes(base: Plan) -> tuple[Note, ...]:
    failed = next((c for c in base.status.conditions if c.type == names.CONDITION_FAILED), None)
    if failed is None:
        return (Note("Normal", "Completed", "the job has succeeded"),)
    return (Note("Warning", "Failed", failed.message),)


def _scale_notes(job: Job, missing: tuple[PodId, ...], surplus: tuple[Pod, ...]) -> tuple[Note, ...]:
    notes = []
    if missing:
        reason = "Scaled" if is_growth(job, missing) else "Created"
        notes.append(Note("Normal", reason, f"created {_pods(len(missing))}"))
    if surplus:
        notes.append(Note("Normal", "Scaled", f"deleted {_pods(len(surplus))}"))
    return tuple(notes)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
