"""The status of a job, computed from what is observed now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sized
from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.facts import FACTS, Case
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.losses import restarts_given_up
from job_controller.core.model import Observed
from job_controller.core.phase import decide_phase
from job_controller.core.pods import ENDED, Pod, PodId, PodState
from job_controller.core.results import decide_results, decide_saved_model, why_unpublished
from job_controller.core.running import count_running, restarting_message, running_condition
from job_controller.core.verdict import (
    End,
    GoOn,
    Hold,
    Restart,
    next_start,
    present_budgets,
    with_delays_reset,
)
from paddlewheel.contracts.conditions import Condition, find, set_condition
from paddlewheel.contracts.crds.paddlejob import LastRestart
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp, seconds_stamp
from paddlewheel.operator.domain.plan import shorten


def with_condition(job: Job, status: JobStatus, condition: Condition, now: datetime) -> JobStatus:
    """Set one condition, with the generation of the spec that it was decided for."""
    return with_conditions(job, status, (condition,), now)


def with_facts(job: Job, status: JobStatus, now: datetime) -> JobStatus:
    """Record the facts that the status makes true."""
    facts = FACTS.declare(status.announcements, Case(job, status), milliseconds_stamp(now))
    return replace(status, announcements=facts)


def wanted_before(status: JobStatus) -> int:
    """Pods that the job asked for when its spec was last right, 0 when it never was."""
    wanted = status.ready.partition("/")[2]
    return int(wanted) if wanted.isdecimal() else 0


def deleted_status(seen: Observed, now: datetime) -> JobStatus:
    """The last status, kept until the last fact is published. Facts begin with JobAccepted, also those of a
    job that is deleted before its first status is written."""
    job, status = seen.job, replace(present_status(seen), phase=names.TERMINATING)
    if not job.status.phase and not job.problems:
        accepted = Condition(names.CONDITION_ACCEPTED, "True", Reason.ACCEPTED)
        status = with_condition(job, replace(status, mode=job.mode.value), accepted, now)
    return with_facts(job, status, now)


def present_status(seen: Observed) -> JobStatus:
    """The recorded status with the present generation and counts."""
    job = seen.job
    status = replace(job.status, observed_generation=job.generation)
    if not status.roles:
        return status
    roles = {name: _followed(seen, name, role) for name, role in status.roles.items()}
    has_ended = status.final or bool(status.completion_time)
    ready = ready_text(asked_for(job, status), count_running(roles), has_ended)
    return replace(status, roles=roles, ready=ready)


def held_status(seen: Observed, why: Hold, now: datetime) -> JobStatus:
    """The recorded status with present counts, and with the node that the verdict waits for. A change of the
    spec is not evaluated yet, and no time is part of the job's run from now on."""
    job, before = seen.job, find(seen.status.conditions, names.CONDITION_RUNNING)
    texts = [
        shorten(f"waits until node {node} renews its Lease or is lost, which may be the cause: {why.message}")
        for node in sorted(why.nodes)
    ]
    # The same node is named for as long as it is in doubt, so that few writes follow from many nodes.
    message = before.message if before is not None and before.message in texts else texts[0]
    status = replace(
        present_status(seen),
        observed_generation=seen.status.observed_generation,
        last_restart=with_delays_reset(seen.status, now),
        budgets=present_budgets(seen.status, now),
    )
    running = before.status if before is not None else "False"
    condition = Condition(names.CONDITION_RUNNING, running, Reason.WAITING_FOR_NODE, message)
    return with_condition(job, status, condition, now)


def asked_for(job: Job, status: JobStatus) -> int:
    """Pods, by the spec that was right last; by the present one when none ever was."""
    return wanted_before(status) or len(job.pod_ids)


def _followed(seen: Observed, name: str, recorded: RoleStatus) -> RoleStatus:
    """Living pods are counted as they are now. Ended pods stay counted when they are gone."""
    pods = [p for p in seen.pods if p.id.role == name and not p.terminating]
    done = seen.succeeded_indexes(name)
    counts = _counts(seen, pods, done)
    kept = {state: max(counts[state], recorded.count(state)) for state in ENDED}
    return replace(recorded, counts=counts | kept, succeeded_indexes=done)


def _counts(seen: Observed, pods: Iterable[Pod], done: Sized) -> dict[PodState, int]:
    """Pods by state. `done` has the pods that have succeeded, also when they are gone."""
    counts = Counter(p.state for p in pods if p.id not in seen.succeeded)
    return {**{state: counts[state] for state in PodState}, PodState.SUCCEEDED: len(done)}


def active_status(seen: Observed, gate: Gate, verdict: GoOn | End, now: datetime) -> JobStatus:
    """Counts, phase, times, conditions and facts of a job that had not ended before this pass."""
    job = seen.job
    roles = count_roles(seen)
    phase = _phase(seen, gate, verdict, roles)
    last_restart = job.status.last_restart if phase == names.RUNNING else with_delays_reset(job.status, now)
    status = replace(
        job.status,
        phase=phase,
        mode=job.mode.value,
        ready=ready_text(len(job.pod_ids), count_running(roles), phase in names.FINAL_PHASES),
        selector=job.selector,
        roles=roles,
        world=job.fitting_world,
        results=decide_results(seen, phase),
        saved_model=decide_saved_model(seen, phase),
        replacing=_given_up(seen),
        last_restart=last_restart,
        budgets=job.status.budgets if phase == names.RUNNING else present_budgets(job.status, now),
        gang=None,
        observed_generation=job.generation,
    )
    status = with_times(status, seen, now)
    for feature in seen.features:
        status = feature.recorded(seen, status, now)
    found = (feature.conditions(seen, status, now) for feature in seen.features)
    current = (
        *_conditions(seen, status, gate, now),
        *(condition for conditions in found for condition in conditions),
        *end_conditions(job, status, verdict),
    )
    status = with_conditions(job, status, current, now)
    causes = (feature.stuck_on(seen, status, gate, now) for feature in seen.features if not status.final)
    cause = next(filter(None, causes), None)
    if cause and cause not in status.stuck_on:
        status = replace(status, stuck_on=(*status.stuck_on, cause))
    return with_facts(job, status, now)


def _given_up(seen: Observed) -> tuple[str, ...]:
    """Uids of pods that end by our own will, also when their places are wanted again before they are gone."""
    return tuple(pod.uid for pod in seen.pods if pod.given_up or pod.id not in seen.job.wanted)


def _phase(seen: Observed, gate: Gate, verdict: GoOn | End, roles: Mapping[str, RoleStatus]) -> str:
    phase = decide_phase(_sizes(seen.job), roles)
    if phase != names.COMPLETED and isinstance(verdict, End):
        return names.FAILED
    if not gate.is_open:
        return names.PENDING
    return names.RESTARTING if is_between_epochs(seen) else phase


def is_between_epochs(seen: Observed) -> bool:
    """The pods of the former epoch have been given up, and none of the present one has been made."""
    return seen.holds_former_world or (seen.status.epoch > 0 and not seen.pods and not seen.succeeded)


def has_succeeded(seen: Observed) -> bool:
    """The pods that end the job have succeeded, also when others have failed."""
    return decide_phase(_sizes(seen.job), count_roles(seen)) == names.COMPLETED


def _sizes(job: Job) -> dict[str, int]:
    return {role.name: job.size_of(role.name) for role in job.roles}


def restarted_status(seen: Observed, why: Restart, now: datetime) -> JobStatus:
    """One restart more. What it does to the pods is done in the next pass, when this is recorded, so that a
    crash in between cannot lose count."""
    job, before = seen.job, seen.status
    status = replace(
        before,
        restarts=_counted(before.restarts, why.cause),
        budgets=_charged(before, why.budget, restarts_given_up(seen, why.only), now),
        last_restart=_last_restart(before, why, now),
        observed_generation=job.generation,
    )
    if why.only:
        return with_facts(job, replace(status, replacing=(*before.replacing, *why.only)), now)
    status = replace(
        status,
        phase=names.RESTARTING,
        epoch=before.epoch + 1,
        roles={role.name: RoleStatus() for role in job.roles},
        ready=ready_text(len(job.pod_ids), 0, False),
        results={},
        saved_model=None,
        world=why.world or before.world,
        replacing=(),
        # Decided again when all pods run.
        conditions=tuple(c for c in before.conditions if c.type != names.CONDITION_DATA_LOCAL),
    )
    condition = Condition(
        names.CONDITION_RUNNING, "False", Reason.RESTARTING, restarting_message(status, None)
    )
    return with_facts(job, with_condition(job, status, condition, now), now)


def _last_restart(before: JobStatus, why: Restart, now: datetime) -> LastRestart:
    last = with_delays_reset(before, now)
    failures = (last.failures if last else 0) + why.is_failure
    return LastRestart(
        time=seconds_stamp(now), reason=why.cause, message=shorten(why.message), failures=failures
    )


def _charged(before: JobStatus, budget: str, in_place: int, now: datetime) -> Mapping[str, int]:
    charges = Counter({budget: 1} if budget else {}) + Counter(backoffLimit=in_place)
    present = present_budgets(before, now)
    return {**present, **{name: present.get(name, 0) + more for name, more in charges.items()}}


def _counted(counts: Mapping[str, int], name: str) -> Mapping[str, int]:
    return {**counts, name: counts.get(name, 0) + 1} if name else counts


def count_roles(seen: Observed) -> Mapping[str, RoleStatus]:
    """Wanted pods that exist, by role and state."""
    return {r.name: _role_status(seen, r.name, r.replicas) for r in seen.job.roles}


def ready_text(wanted: int, running: int, has_ended: bool) -> str:
    """Pods that run and are ready; none of a job that has ended, though some of a failed one may run on."""
    return f"{0 if has_ended else running}/{wanted}"


def _role_status(seen: Observed, role: str, replicas: int) -> RoleStatus:
    pods = [p for p in seen.pods if p.id.role == role and p.id.ordinal < replicas]
    done = tuple(index for index in seen.succeeded_indexes(role) if index < replicas)
    refs = {p.id.ordinal: _ref(seen.job, p) for p in pods}
    refs = _recorded_refs(seen, role, set(done) - set(refs)) | refs
    return RoleStatus(_counts(seen, pods, done), tuple(refs[index] for index in sorted(refs)), done)


def _recorded_refs(seen: Observed, role: str, gone: set[int]) -> dict[int, Mapping[str, str]]:
    """References to pods that are gone, by index."""
    if not gone:
        return {}
    recorded = seen.status.roles.get(role)
    by_name = {ref["name"]: ref for ref in recorded.refs} if recorded else {}
    pods = {index: seen.job.pod_name(PodId(role, index)) for index in gone}
    return {index: by_name[name] for index, name in pods.items() if name in by_name}


def _ref(job: Job, pod: Pod) -> Mapping[str, str]:
    """Without resourceVersion, or the status would change with every pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": job.key.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }


def with_times(status: JobStatus, seen: Observed, now: datetime) -> JobStatus:
    """The same with the times of the start and the end."""
    if status.phase == names.RUNNING and not status.start_time:
        return replace(status, start_time=seconds_stamp(now))
    if not status.final:
        return status
    # A job may end before it was ever seen running. One that has failed may never have run.
    earliest = min((p.started_at for p in seen.known_pods if p.began and p.started_at), default="")
    latest = seconds_stamp(now) if status.phase == names.COMPLETED else ""
    return replace(
        status,
        start_time=status.start_time or earliest or latest,
        completion_time=seconds_stamp(now),
    )


def with_conditions(job: Job, status: JobStatus, current: Iterable[Condition], now: datetime) -> JobStatus:
    """The same with these conditions, each with the generation of the spec."""
    stamp, conditions = seconds_stamp(now), status.conditions
    for condition in current:
        fresh = replace(condition, observed_generation=job.generation)
        conditions = set_condition(conditions, fresh, stamp)
    return replace(status, conditions=conditions)


def _conditions(seen: Observed, status: JobStatus, gate: Gate, now: datetime) -> list[Condition]:
    return [
        Condition(names.CONDITION_ACCEPTED, "True", Reason.ACCEPTED),
        Condition(names.CONDITION_ADMITTED, "True" if gate.is_open else "False", gate.reason, gate.message),
        running_condition(seen, status, gate, now, begins=next_start(seen, now)),
    ]


def end_conditions(job: Job, status: JobStatus, verdict: GoOn | End) -> list[Condition]:
    """The condition of a job that has ended, none before."""
    if status.phase == names.COMPLETED:
        unpublished = why_unpublished(job, status)
        reason = Reason.MODEL_NOT_REPORTED if unpublished else Reason.COMPLETED
        return [Condition(names.CONDITION_COMPLETE, "True", reason, shorten(unpublished))]
    if isinstance(verdict, End) and status.phase == names.FAILED:
        return [Condition(names.CONDITION_FAILED, "True", verdict.reason, shorten(verdict.message))]
    return []
