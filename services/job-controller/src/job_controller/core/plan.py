"""The pure decision: from what is observed to what is done. All branching is here and in the rules of the
features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from job_controller.core import names
from job_controller.core.clean_up import deletes_children, pods_to_delete
from job_controller.core.deletion import expires_at, is_patience_over, without_finalizer
from job_controller.core.environment import config_data, told_port
from job_controller.core.events import (
    end_event,
    expiry_event,
    gate_events,
    refusal_events,
    restart_event,
    scale_events,
)
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, Plan
from job_controller.core.model import Observed, Options
from job_controller.core.phase import missing_pods, surplus_pods
from job_controller.core.pods import Pod, PodId
from job_controller.core.program_end import with_program_ends
from job_controller.core.refused import has_outlived_success, refused_restart, refused_status
from job_controller.core.render import frame_of, render_config_map, render_pod, render_service
from job_controller.core.status import (
    active_status,
    deleted_status,
    has_succeeded,
    held_status,
    present_status,
    restarted_status,
)
from job_controller.core.verdict import (
    End,
    GoOn,
    Hold,
    Restart,
    decide_verdict,
    ends_at,
    next_start,
    start_times,
)
from job_controller.timing import (
    EXPIRED_PODS_GRACE_SECONDS,
    NODE_LEASE_READ_INTERVAL_SECONDS,
)
from paddlewheel.contracts.announcements import pending
from paddlewheel.contracts.crds import Network
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import (
    Action,
    Create,
    Delete,
    LazyManifest,
    Patch,
    earliest,
)

_PASSED = Gate(True, Reason.NOTHING_TO_WAIT_FOR)


def plan(seen: Observed, options: Options, now: datetime) -> Plan:
    """Decide about one job.

    A job that ends now is only recorded as ended. Its children are cleaned up in the next pass, when the API
    server holds the end, so that a crash in between can never run it again.
    """
    if seen.job.is_anothers:
        return Plan()
    seen = adjusted(with_program_ends(seen, now), options, now)
    todo = _plan(seen, options, now)
    if not seen.job.is_live:
        return todo
    return replace(todo, requeue_after=earliest(todo.requeue_after, seen.next_look))


def adjusted(seen: Observed, options: Options, now: datetime) -> Observed:
    """The observation with what the rules of all features have found."""
    for feature in seen.features:
        seen = feature.adjusted(seen, options, now)
    return seen


def _plan(seen: Observed, options: Options, now: datetime) -> Plan:
    job = seen.job
    if job.deleted_at is not None:
        return _plan_deletion(seen, options, now)
    if job.status.final:
        return _plan_finished(seen, now)
    if job.problems:
        return _plan_refused(seen, now)
    return _plan_active(seen, options, now)


def _plan_deletion(seen: Observed, options: Options, now: datetime) -> Plan:
    """Kubernetes deletes children with their owner; what is left to do is to publish the last fact.

    While that waits for the bus, the pods are deleted here, since their owner goes only afterwards. A job
    with quota of Kueue goes after its pods, or others would get that quota too early.
    """
    job = seen.job
    if names.FINALIZER not in job.finalizers:
        return Plan()
    is_held, is_over = job.status.phase == names.TERMINATING, is_patience_over(job, options, now)
    pods = [p for p in (*seen.pods, *seen.old_pods) if not p.terminating] if is_held else []
    is_needed = any(feature.holds_deleted_job(seen) for feature in seen.features)
    waits_for_pods = is_needed and not is_over
    next_look = options.gate_recheck if waits_for_pods else None
    return Plan(
        deleted_status(seen, now),
        actions=_delete_pods(job, pods),
        release=None if waits_for_pods else without_finalizer(job),
        release_anyway=is_over,
        requeue_after=next_look if is_held else 0.0,
    )


def _plan_finished(seen: Observed, now: datetime) -> Plan:
    """Nothing is ever created again; the clean-up policy selects the children to delete, and the time to
    live ends the job itself."""
    job = seen.job
    status, expires = present_status(seen), expires_at(job)
    pods = pods_to_delete(seen)
    if expires is not None and now >= expires:
        # The pods go with the job, unless the bus has refused its facts once.
        ends_pods_at = expires + timedelta(seconds=EXPIRED_PODS_GRACE_SECONDS)
        actions = _delete_pods(job, pods) if now >= ends_pods_at and pending(status.announcements) else ()
        next_look = _seconds_until(ends_pods_at, now)
        return Plan(status, actions=actions, expiry=expiry_event(job), requeue_after=next_look)
    plan = Plan(status, requeue_after=None if expires is None else (expires - now).total_seconds())
    needs = tuple(kind for feature in seen.features for kind in feature.needed_before_clean_up(seen, now))
    services = seen.services if deletes_children(job.spec.clean_pod_policy, status.phase) else ()
    actions = (
        *(action for feature in seen.features for action in feature.children_before_clean_up(seen)),
        *_delete_pods(job, pods, needs),
        *_delete_services(seen, services),
        *(action for feature in seen.features for action in feature.children_when_finished(seen)),
    )
    return replace(plan, actions=actions)


def _plan_refused(seen: Observed, now: datetime) -> Plan:
    """Nothing is created. The pods that a job has may still end it, and so may its deadline; a restart waits
    until the spec is right. A job that was never recorded as accepted is not judged before it is."""
    job, events = seen.job, refusal_events(seen.job)
    is_judged = job.status.was_accepted and not has_outlived_success(seen)
    verdict = decide_verdict(seen, now) if is_judged else GoOn()
    if isinstance(verdict, Hold):
        return _plan_hold(seen, verdict, now)
    if isinstance(verdict, Restart):
        status = refused_restart(seen, verdict, now)
        return Plan(status, events=(*events, restart_event(verdict)), requeue_after=0.0)
    status = refused_status(seen, verdict, now)
    if status.final:
        return Plan(status, events=(*events, end_event(status)), requeue_after=0.0)
    released = (action for feature in seen.features for action in feature.children_when_refused(seen))
    actions = (*_end_old_world(seen), *released)
    return Plan(status, actions, events=events, requeue_after=_next_look(seen, status, now))


def _plan_active(seen: Observed, options: Options, now: datetime) -> Plan:
    job = seen.job
    is_done = has_succeeded(seen)
    verdict = GoOn() if is_done else decide_verdict(seen, now)
    is_first = not job.status.was_accepted
    if isinstance(verdict, Hold) and not is_first:
        return _plan_hold(seen, verdict, now)
    if isinstance(verdict, Restart) and not is_first:
        return _plan_restart(seen, verdict, now)
    gate = decide_gate(seen, has_ended=is_done or isinstance(verdict, End))
    if isinstance(verdict, Restart | Hold):
        # The facts begin with JobAccepted, and no job is without a status while its verdict waits.
        return Plan(active_status(seen, gate, GoOn(), now), requeue_after=0.0)
    status = active_status(seen, gate, verdict, now)
    base = Plan(status, metadata=_metadata_patch(seen, gate))
    if status.final:
        return replace(base, events=(end_event(status),), requeue_after=0.0)
    events = (event for feature in seen.features for event in feature.events(seen, status, gate))
    base = replace(base, events=tuple(events), requeue_after=_next_look(seen, status, now))
    if not gate.is_open:
        return _plan_gated(base, seen, gate, options, now)
    if any(feature.must_wait(seen) for feature in seen.features):
        return base
    return _with_children(base, seen, options, now)


def decide_gate(seen: Observed, *, has_ended: bool = False) -> Gate:
    """The first closed gate. When no gate is closed, an open gate with its reason. A job that has ended waits
    for nothing."""
    gates = [gate for feature in seen.features if (gate := feature.gate(seen))]
    closed = (gate for gate in gates if not gate.is_open and not has_ended)
    return next(closed, next((gate for gate in gates if gate.is_open), _PASSED))


def _plan_restart(seen: Observed, why: Restart, now: datetime) -> Plan:
    """Only recorded: the next pass ends the pods, and those after it make new ones."""
    return Plan(restarted_status(seen, why, now), events=(restart_event(why),), requeue_after=0.0)


def _plan_hold(seen: Observed, why: Hold, now: datetime) -> Plan:
    """Only the wait is recorded: everything else would be about pods whose fate is not known yet. A deadline
    does not wait."""
    next_look = earliest(NODE_LEASE_READ_INTERVAL_SECONDS, _seconds_until(ends_at(seen.job), now))
    return Plan(held_status(seen, why, now), requeue_after=next_look)


def _plan_gated(base: Plan, seen: Observed, gate: Gate, options: Options, now: datetime) -> Plan:
    """Nothing is created; what was given up ends all the same."""
    surplus = surplus_pods(seen)
    waiting = (f.children_while_gated(seen, gate, now) for f in seen.features)
    return replace(
        base,
        actions=(
            *_end_old_world(seen),
            *(action for actions in waiting for action in actions),
            *_delete_pods(seen.job, surplus),
            *_surplus_services(seen),
        ),
        events=(*base.events, *gate_events(seen.job, gate), *scale_events(seen.job, (), surplus)),
        requeue_after=earliest(options.gate_recheck, seen.retry_after),
    )


def _next_look(seen: Observed, status: JobStatus, now: datetime) -> float | None:
    """Seconds until time alone changes something."""
    waits = (_seconds_until(at, now) for at in (ends_at(seen.job), next_start(seen, now)))
    return earliest(*waits, *(feature.next_look(seen, status, now) for feature in seen.features))


def _seconds_until(at: datetime | None, now: datetime) -> float | None:
    """None for a time that has passed, or that there is not."""
    return (at - now).total_seconds() if at is not None and at > now else None


def _end_old_world(seen: Observed) -> tuple[Action, ...]:
    """Pods and addresses of former epochs, and pods that are replaced by themselves."""
    job = seen.job
    given_up = (*(p for p in seen.pods if p.given_up), *seen.useless)
    pods = [p for p in (*seen.old_pods, *given_up) if not p.terminating]
    config = (Delete(names.CONFIG_MAP, job.key, seen.old_config, vanishes=True),) if seen.old_config else ()
    return (*config, *_delete_pods(job, pods))


def _metadata_patch(seen: Observed, gate: Gate) -> Mapping[str, Any] | None:
    patch: dict[str, Any] = {}
    if names.FINALIZER not in seen.job.finalizers:
        patch["finalizers"] = [*seen.job.finalizers, names.FINALIZER]
    found = (feature.annotations(seen, gate) for feature in seen.features)
    if annotations := {name: value for each in found for name, value in each.items()}:
        patch["annotations"] = annotations
    return patch or None


def _with_children(base: Plan, seen: Observed, options: Options, now: datetime) -> Plan:
    job = seen.job
    missing, surplus = _due_pods(seen, options, now), surplus_pods(seen)
    scaled = scale_events(job, missing, surplus) if missing or surplus else ()
    port = told_port(job)
    data = config_data(seen, port)
    before = (feature.children(seen) for feature in seen.features)
    after = (feature.updates(seen, has_addresses=data is not None) for feature in seen.features)
    return replace(
        base,
        actions=(
            *_end_old_world(seen),
            # First the ConfigMap, so that no new pod ever starts with old addresses.
            *_config_map(seen, data),
            *_services(seen, port),
            *(action for actions in before for action in actions),
            *_new_pods(seen, port, missing, options),
            *(action for actions in after for action in actions),
            *_delete_pods(job, surplus),
            *_surplus_services(seen),
        ),
        # The caches of jobs and of pods differ in age: a job that has ended meanwhile must not run again.
        verify=bool(missing),
        events=(*base.events, *scaled),
        requeue_after=earliest(base.requeue_after, seen.retry_after),
    )


def _due_pods(seen: Observed, options: Options, now: datetime) -> tuple[PodId, ...]:
    """The missing pods that can be made now."""
    if seen.must_wait:
        return ()
    due = missing_pods(seen)
    for feature in seen.features:
        due = feature.due_pods(seen, due, options, now)
    waits = start_times(seen, now)
    return tuple(place for place in due if place not in waits)


def _config_map(seen: Observed, data: Mapping[str, str] | None) -> tuple[Action, ...]:
    if data is None or seen.config == data:
        return ()
    if seen.config is None:
        return () if seen.must_wait else (Create(names.CONFIG_MAP, render_config_map(seen.job, data)),)
    gone: dict[str, str | None] = {k: None for k in seen.config if k not in data}
    changed = {k: v for k, v in data.items() if seen.config.get(k) != v}
    return (Patch(names.CONFIG_MAP, seen.job.key, {"data": gone | changed}),)


def _services(seen: Observed, port: int) -> tuple[Action, ...]:
    job = seen.job
    pods = () if seen.waits_for_former else _service_pods(job)
    named = ((Key(job.key.namespace, job.pod_name(pod)), pod) for pod in pods)
    return tuple(
        Create(names.SERVICE_KIND, LazyManifest(key, partial(render_service, job, pod, port)))
        for key, pod in named
        if key.name not in seen.services
    )


def _service_pods(job: Job) -> tuple[PodId, ...]:
    """Pods that are addressed by name; the others need no Service."""
    return job.pod_ids if job.network is Network.SERVICE else ()


def _new_pods(seen: Observed, port: int, missing: tuple[PodId, ...], options: Options) -> tuple[Action, ...]:
    if seen.trouble is not None or not missing:
        # Where they should run depends on the data set.
        return ()
    job, roles = seen.job, {r.name: r for r in seen.job.roles}
    frame = frame_of(seen, port, options)
    manifests = (
        LazyManifest(
            Key(job.key.namespace, job.pod_name(p)), partial(render_pod, frame, roles[p.role], p.ordinal)
        )
        for p in missing
    )
    return tuple(Create(names.POD, m, needs=names.BEFORE_PODS) for m in manifests)


def _delete_pods(job: Job, pods: Iterable[Pod], needs: tuple[str, ...] = ()) -> tuple[Action, ...]:
    return tuple(Delete(names.POD, Key(job.key.namespace, p.name), p.uid, needs) for p in pods)


def _surplus_services(seen: Observed) -> tuple[Action, ...]:
    """Delete the Services of pods that are not wanted. The original operator made Services in every network,
    and its pods wait for their names."""
    job = seen.job
    wanted = set(map(job.pod_name, job.pod_ids))
    return _delete_services(seen, (n for n in seen.services if n not in wanted))


def _delete_services(seen: Observed, services: Iterable[str]) -> tuple[Action, ...]:
    namespace = seen.job.key.namespace
    return tuple(
        Delete(names.SERVICE_KIND, Key(namespace, n), seen.services[n], vanishes=True) for n in services
    )
