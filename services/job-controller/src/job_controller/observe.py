"""Reads only: caches and rare GETs, gathered into what a plan is made from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from job_controller.core import names
from job_controller.core.environment import epoch_of
from job_controller.core.model import (
    Flavor,
    Job,
    JobStatus,
    Observed,
    PortClaim,
    Priority,
    Rivals,
    SampleSet,
    with_pods,
)
from job_controller.core.parse import (
    parse_flavor,
    parse_job,
    parse_pod_group,
    parse_priority,
    parse_sample_set,
    parse_workload,
)
from job_controller.core.pods import Pod, PodState, is_scheduled
from job_controller.core.scaling import (
    is_scaled_to_nothing,
    missing_pods,
    needs_config_name,
    service_names,
)
from job_controller.departures import Departures
from job_controller.endings import Endings
from job_controller.features import with_features
from job_controller.features.dataset.rules import needs_sample_set
from job_controller.features.gang.children import CHILD
from job_controller.features.kept_logs.rules import BYTES, LINES, not_read, pods_to_read
from job_controller.features.kueue.rules import needed_priority, needs_flavors, workload_key
from job_controller.features.silent_nodes.observe import NodeLeases
from job_controller.features.start_gate.rules import open_gates
from job_controller.features.stuck.observe import Schedulers
from job_controller.features.stuck.unprepared import find_cause, unprepared_pod, with_hindrance
from job_controller.rank_delays import RankDelays
from job_controller.sightings import Sightings
from job_controller.timing import (
    EVENTS_READ_INTERVAL_SECONDS,
    LOGS_READ_TIMEOUT_SECONDS,
    NEED_GRACE_SECONDS,
    RIVAL_GROWTH_GRACE_SECONDS,
)
from job_controller.watch import (
    BY_HOST_PORT,
    BY_OWNER,
    BY_ROOM,
    BY_SAMPLE_SET,
    JOB,
    RESTARTING,
    SMALL,
    TAKEN,
    WAITING,
    claimed_port,
    owner_of,
    sample_set_of,
)
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.crds import WORKER, Network
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import status_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.objects import controller_uid, id_of, uid_of
from paddlewheel.kube.ports import (
    CONFIG_MAPS,
    EVENTS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    SAMPLE_SETS,
    WORKLOAD_PRIORITY_CLASSES,
    Change,
    Cluster,
    Object,
)
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.domain.hindrance import Hindrance
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.watch import Watch

FOREIGN = "exists and does not belong to this job; delete it or rename the job"
EVENTS_AT_ONCE = 4
"""Pods of all jobs whose Events are read at the same time."""
_PRIORITY_CLASSES = {
    names.PRIORITY_CLASS: PRIORITY_CLASSES,
    names.WORKLOAD_PRIORITY_CLASS: WORKLOAD_PRIORITY_CLASSES,
}
LOGS_AT_ONCE = 8
"""Logs of all jobs that are read at the same time."""


@dataclass(frozen=True)
class _Answer:
    """What Events say about a pod; `until`: on the monotonic clock."""

    uid: str
    until: float
    hindrance: Hindrance | None


class JobObserver:
    """Gathers everything that the decision about one job depends on.

    Args:
        cluster: where data sets are read; they are not watched, since the bus says when one changes.
        reads: backs off for those that cannot be read.
        since: when this service began to receive reports of progress.
    """

    def __init__(
        self, watch: Watch, cluster: Cluster, reads: Reads, clock: Clock, since: datetime | None = None
    ) -> None:
        self._watch = watch
        self._cluster = cluster
        self._reads = reads
        self._clock = clock
        self._since = since
        self._asked: dict[Key, _Answer] = {}
        self._event_slots = asyncio.Semaphore(EVENTS_AT_ONCE)
        self._log_slots = asyncio.Semaphore(LOGS_AT_ONCE)
        self._done_with_logs: set[str] = set()
        self._well_sets: set[Key] = set()
        self._facts_heard = 0
        """About any data set."""
        self._parse_job: Memo[Job] = Memo(parse_job)
        self._endings = Endings(clock)
        self._departures = Departures(watch.of(JOB), self._endings.parse)
        self._delays = RankDelays(clock)
        self._gates = Sightings(clock)
        self._room: _Room | None = None
        """None after a change."""
        self._node_leases = NodeLeases(cluster, clock)
        self._schedulers = Schedulers(cluster, clock)

    async def observe(self, key: Key) -> Observed | None:
        """None when the job is gone. Raises Permanent when it cannot be parsed."""
        seen = self.observe_cached(key)
        if seen is None:
            return None
        job = seen.job
        if job.deleted_at is None and needs_sample_set(seen):
            seen = await self._with_sample_set(seen)
        elif job.deleted_at is None and self._may_be_ill(job):
            seen = replace(seen, sample_set=(await self._with_sample_set(seen)).sample_set)
        if job.deleted_at is None and not job.status.final:
            seen = await self._with_foreign_config(seen)
            seen = await self._with_priority(await self._with_flavors(seen))
            seen = await self.with_leases(await self._with_unprepared(seen))
        else:
            self._node_leases.forget(key)
        if job.uid not in self._done_with_logs and (pods := pods_to_read(seen)):
            return replace(seen, logs=await self._logs(pods, key.namespace))
        return seen

    async def with_leases(self, seen: Observed) -> Observed:
        """The same, with schedulers and nodes whose Leases the decision depends on."""
        return await self._node_leases.read(await self._schedulers.read(with_features(seen)))

    def observe_cached(self, key: Key) -> Observed | None:
        """The same without what has to be asked for: the data set, a foreign ConfigMap, Leases, logs."""
        obj = self._watch.of(JOB).get(key)
        if obj is None:
            return None
        job = self._parse_job(obj)
        # First all caches, as they are at one time.
        seen = Observed(job, services=self._services(job), listening_since=self._since)
        seen = replace(seen, delays=self._delays.of(job), is_asked_anew=self._delays.is_asked_anew(job))
        seen = self._with_config(with_pods(seen, self._pods(job), self._departures.of(job.uid)))
        seen = self._with_workload(self._with_pod_groups(seen))
        at_gates = {pod.uid for pod in open_gates(seen)} if not job.status.final else set[str]()
        seen = replace(seen, gates_open_since=self._gates.of(job.uid, at_gates))
        if job.network is Network.HOST:
            seen = self._with_port_claims(seen)
        if job.is_resizable and job.workers < job.replicas_of(WORKER) and not job.status.final:
            seen = replace(seen, rivals=self._rivals(job))
        if job.deleted_at is None and not job.status.final:
            return self._with_former(seen)
        return seen

    def heard(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        self._room = None
        self._departures.heard(kind, change)
        self._endings.heard(kind, change)
        self._schedulers.heard(kind, change)
        if change.type == "DELETED":
            self._parse_job.forget(change.obj)
            self._forget_sample_set(sample_set_of(change.obj) if kind == JOB else None)

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        """This status was written after that observation."""
        self._departures.counted(seen.job.uid, status.replacing)
        self._delays.recorded(seen, status)

    def done_with_logs(self, job_uid: str) -> None:
        """They were kept, or never can be: they are not read again."""
        self._done_with_logs.add(job_uid)

    def forget_job(self, key: Key, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
        self._done_with_logs.discard(job_uid)
        self._reads.forget(names.CONFIG_MAP, key)
        self._asked.pop(key, None)
        self._node_leases.forget(key)
        self._delays.forget(job_uid)
        self._gates.forget(job_uid)
        self._schedulers.forget(job_uid)

    def _pods(self, job: Job) -> tuple[Pod, ...]:
        parsed = (self._endings.parse(raw) for raw in self._children(names.POD, job))
        return tuple(sorted((p for p in parsed if p and p.job == job.key.name), key=lambda p: p.id))

    def _services(self, job: Job) -> dict[str, str]:
        return {s["metadata"]["name"]: uid_of(s) for s in self._children(names.SERVICE_KIND, job)}

    def _with_config(self, seen: Observed) -> Observed:
        maps = self._children(names.CONFIG_MAP, seen.job)
        found = next((c for c in maps if c["metadata"]["name"] == seen.job.key.name), None)
        if found is None:
            return seen
        data = found.get("data") or {}
        epoch, present = epoch_of(data), seen.job.status.epoch
        if epoch == present:
            return replace(seen, config=data)
        # One of a newer epoch is known to whoever has read the job later.
        return seen if epoch is None or epoch > present else replace(seen, old_config=uid_of(found))

    def _with_pod_groups(self, seen: Observed) -> Observed:
        stores = {gang: store for gang, kind in CHILD.items() if (store := self._watch.stores.get(kind))}
        found = ((gang, store.get(seen.job.key)) for gang, store in stores.items())
        parsed = (parse_pod_group(gang, obj, seen.job.uid) for gang, obj in found if obj)
        installed = frozenset(gang for gang, store in stores.items() if store.installed)
        return replace(seen, pod_groups=tuple(group for group in parsed if group), gang_kinds=installed)

    def _with_workload(self, seen: Observed) -> Observed:
        store = self._watch.of(names.WORKLOAD)
        found = store.get(workload_key(seen.job))
        is_own = found is not None and controller_uid(found) == [seen.job.uid]
        workload = parse_workload(found) if found and is_own else None
        return replace(seen, workload=workload, has_kueue=store.installed)

    def _children(self, kind: str, job: Job) -> list[Object]:
        return self._watch.of(kind).by_index(BY_OWNER, id_of(job.obj))

    def _with_former(self, seen: Observed) -> Observed:
        """Looks only at names under which something is to be created."""
        job = seen.job
        pods = [job.pod_name(place) for place in missing_pods(seen)]
        parsed = [self._endings.parse(pod) for pod in self._of_former(names.POD, job, pods)]
        wanted = [name for name in service_names(job) if name not in seen.services]
        services = self._of_former(names.SERVICE_KIND, job, wanted)
        configs = self._of_former(names.CONFIG_MAP, job, [job.key.name] if seen.config is None else [])
        groups = [obj for kind in names.POD_GROUPS for obj in self._of_former(kind, job, [job.key.name])]
        queued = [workload_key(job).name] if job.queue and seen.workload is None else []
        workloads = self._of_former(names.WORKLOAD, job, queued)
        former_pods = tuple(pod for pod in parsed if pod)
        has_others = bool(services or configs or groups or workloads)
        return replace(seen, former_pods=former_pods, has_former_others=has_others)

    def _of_former(self, kind: str, job: Job, wanted: Iterable[str]) -> list[Object]:
        """Children of a deleted job of the same name."""
        store = self._watch.stores.get(kind)
        found = (store.get(Key(job.key.namespace, name)) for name in wanted) if store else ()
        return [obj for obj in found if obj and owner_of(obj) == job.key and controller_uid(obj) != [job.uid]]

    async def _with_foreign_config(self, seen: Observed) -> Observed:
        """Before the first pods of a job are made, which could never start beside a foreign ConfigMap:
        one without our label is not watched."""
        if seen.trouble is not None or not needs_config_name(seen):
            return seen
        key = seen.job.key
        found = await self._reads.attempt(names.CONFIG_MAP, key, partial(self._check_config, seen.job))
        if found is None:
            return seen
        return replace(seen, trouble=found, retry_after=self._reads.retry_after(names.CONFIG_MAP, key))

    async def _check_config(self, job: Job) -> None:
        """Raises Permanent for a ConfigMap that is neither the job's nor that of a former one of its name."""
        try:
            found = await self._cluster.get(CONFIG_MAPS, job.key)
        except NotFound:
            return
        if controller_uid(found) != [job.uid] and owner_of(found) != job.key:
            raise Permanent(Reason.OWNED_BY_ANOTHER, FOREIGN)

    async def _with_flavors(self, seen: Observed) -> Observed:
        """What Kueue wants of pods that are to be made now; none are while there is trouble already."""
        if seen.trouble is not None:
            return seen
        found = dict[str, Flavor]()
        for name in needs_flavors(seen):
            key = Key("", name)
            answer = await self._reads.attempt(names.RESOURCE_FLAVOR, key, partial(self._find_flavor, key))
            if isinstance(answer, Trouble):
                retry_after = self._reads.retry_after(names.RESOURCE_FLAVOR, key)
                return replace(seen, trouble=answer, retry_after=retry_after)
            found[name] = answer
        return replace(seen, flavors=found) if found else seen

    async def _find_flavor(self, key: Key) -> Flavor:
        """Raises Permanent when there is none: pods without it would run where they have no quota."""
        try:
            return parse_flavor(await self._cluster.get(RESOURCE_FLAVORS, key))
        except NotFound:
            raise Permanent("NotFound", "Kueue has admitted the job with it; create it again") from None

    async def _with_priority(self, seen: Observed) -> Observed:
        """The number that Kueue wants with the name of a class."""
        if seen.trouble is not None or (needed := needed_priority(seen)) is None:
            return seen
        kind, key = needed[0], Key("", needed[1])
        answer = await self._reads.attempt(kind, key, partial(self._find_priority, kind, key))
        if isinstance(answer, Trouble):
            return replace(seen, trouble=answer, retry_after=self._reads.retry_after(kind, key))
        return replace(seen, priority=answer)

    async def _find_priority(self, kind: str, key: Key) -> Priority:
        """Raises Permanent when there is none: without it the job would wait behind others for ever."""
        try:
            return parse_priority(kind, await self._cluster.get(_PRIORITY_CLASSES[kind], key))
        except NotFound:
            raise Permanent("NotFound", "the job asks for it; create it, or name another one") from None

    async def _with_unprepared(self, seen: Observed) -> Observed:
        """With what Events say about a pod that waits too long for its volumes or its network."""
        pod = unprepared_pod(seen, self._clock.now())
        if pod is None:
            self._asked.pop(seen.job.key, None)
            return seen
        answer = self._asked.get(seen.job.key)
        if answer is None or answer.uid != pod.uid or answer.until <= self._clock.monotonic():
            answer = await self._ask(seen.job.key.namespace, pod)
            self._asked[seen.job.key] = answer
        return with_hindrance(seen, pod, answer.hindrance) if answer.hindrance else seen

    async def _ask(self, namespace: str, pod: Pod) -> _Answer:
        about, hindrance = f"involvedObject.uid={pod.uid},type=Warning", None
        # Without an answer nothing is known, and it is asked again.
        with suppress(Retry, Permanent):
            async with self._event_slots:
                found = await self._cluster.list(EVENTS, namespace, field_selector=about)
            hindrance = find_cause(found)
        return _Answer(pod.uid, self._clock.monotonic() + EVENTS_READ_INTERVAL_SECONDS, hindrance)

    async def _with_sample_set(self, seen: Observed) -> Observed:
        ref = seen.job.sample_set
        if ref is None:
            return seen
        heard = self._facts_heard
        found = await self._reads.attempt(names.SAMPLE_SET, ref, partial(self._find_sample_set, ref))
        if isinstance(found, Trouble):
            return replace(seen, trouble=found, retry_after=self._reads.retry_after(names.SAMPLE_SET, ref))
        # A fact that came meanwhile may be newer than the answer.
        if (found is None or found.is_well) and heard == self._facts_heard and self._has_jobs(ref):
            self._well_sets.add(ref)
        return replace(seen, sample_set=found)

    def _forget_sample_set(self, ref: Key | None) -> None:
        """A job that used it is gone."""
        if ref is not None and not self._has_jobs(ref):
            self._well_sets.discard(ref)
            self._reads.forget(names.SAMPLE_SET, ref)

    def _has_jobs(self, sample_set: Key) -> bool:
        return self._watch.of(JOB).count_by_index(BY_SAMPLE_SET, str(sample_set)) > 0

    def _may_be_ill(self, job: Job) -> bool:
        """The job's data set was not seen ready since the last fact about it."""
        return job.sample_set is not None and not job.status.final and job.sample_set not in self._well_sets

    async def sample_set_changed(self, delivery: Delivery) -> None:
        """A fact about a data set: it is looked at again."""
        if ref := getattr(delivery.event.data, "sample_set", None):
            key = Key(ref.namespace, ref.name)
            self._facts_heard += 1
            self._well_sets.discard(key)

    async def _find_sample_set(self, ref: Key) -> SampleSet | None:
        try:
            return parse_sample_set(await self._cluster.get(SAMPLE_SETS, ref))
        except NotFound:
            return None

    async def _logs(self, pods: Sequence[Pod], namespace: str) -> dict[str, str]:
        """By pod; of those that cannot be read in time, as when a node is gone, the reason."""
        logs = {pod.name: not_read(f"no answer within {LOGS_READ_TIMEOUT_SECONDS:g} s") for pod in pods}

        async def read(pod: Pod) -> None:
            async with self._log_slots:
                logs[pod.name] = await self._read_log(Key(namespace, pod.name), pod.speaker)

        with suppress(TimeoutError):
            async with asyncio.timeout(LOGS_READ_TIMEOUT_SECONDS):
                await gather_bounded(map(read, pods))
        return logs

    async def _read_log(self, pod: Key, container: str) -> str:
        try:
            # One byte more than is kept, to know that there was more.
            return await self._cluster.read_log(pod, container=container, lines=LINES, limit_bytes=BYTES + 1)
        except (Retry, Permanent) as error:
            return not_read(error.message or error.reason)
        except NotFound:
            return not_read("the pod is gone")

    def _rivals(self, own: Job) -> Rivals:
        """The pods of other jobs on the nodes that this one might grow on."""
        if self._room is None:
            self._room = self._find_room()
        room, now = self._room, self._clock.now()
        needed_since = now - timedelta(seconds=NEED_GRACE_SECONDS)
        grows_since = now - timedelta(seconds=RIVAL_GROWTH_GRACE_SECONDS)
        return Rivals(
            need=any(at > needed_since for job, at in room.needs if job != own.uid),
            refused=any(at > needed_since for job, at in room.refusals if job != own.uid),
            grow=any(at > grows_since for job, at in room.growths if job != own.uid),
            look=bool(room.looking - {own.uid}),
        )

    def _find_room(self) -> _Room:
        small = [job for obj in self._in_state(JOB, SMALL) if (job := self._parsed(obj)) is not None]
        beyond = [(job.uid, pod) for job in small for pod in self._pods(job) if not job.trains(pod.id)]
        looking = {pod.uid: job for job, pod in beyond if not pod.node and not pod.terminating}
        # Users can create pods with our labels, which must not keep jobs from growing.
        homeless = [
            pod
            for pod in self._in_state(names.POD, WAITING)
            if uid_of(pod) not in looking and self._has_job(pod)
        ]
        waiting = [_need(pod) for pod in homeless]
        refusals = [_need(pod) for pod in homeless if is_scheduled(pod)]
        restarts = [
            (uid_of(obj), (status_of(obj).get("lastRestart") or {}).get("time"))
            for obj in self._in_state(JOB, RESTARTING)
        ]
        growths = [
            (job, pod.started_at or pod.created_at) for job, pod in beyond if pod.state is PodState.STARTING
        ]
        needs, searches = _with_times((*waiting, *restarts)), frozenset(looking.values())
        return _Room(needs, _with_times(refusals), _with_times(growths), searches)

    def _in_state(self, kind: str, state: str) -> Sequence[Object]:
        return self._watch.of(kind).by_index(BY_ROOM, state)

    def _has_job(self, pod: Object) -> bool:
        owner = owner_of(pod)
        job = None if owner is None else self._watch.of(JOB).get(owner)
        return job is not None and controller_uid(pod) == [uid_of(job)]

    def _parsed(self, obj: Object) -> Job | None:
        """None for a job that cannot be read, which its own pass reports."""
        try:
            return self._parse_job(obj)
        except Permanent:
            return None

    def _with_port_claims(self, seen: Observed) -> Observed:
        """Host ports of all jobs but this one."""
        jobs, own = self._watch.of(JOB), seen.job
        others = (job for job in jobs.by_index(BY_HOST_PORT, TAKEN) if uid_of(job) != own.uid)
        claims = tuple(_port_claim(job) for job in others if self._needs_ports(job))
        return replace(seen, port_claims=claims, is_reported=jobs.is_reported(own.key))

    def _needs_ports(self, obj: Object) -> bool:
        """The job has pods, or may create some. A user can write the annotation of a claim on any job."""
        if self._watch.of(names.POD).count_by_index(BY_OWNER, id_of(obj)) > 0:
            return True
        job = self._parsed(obj)
        if job is None or job.network is not Network.HOST or job.problems:
            return False
        is_idle = job.spec.suspend or is_scaled_to_nothing(job)
        return not (is_idle or job.is_anothers or job.status.final)


@dataclass(frozen=True)
class _Room:
    """The use of room on the nodes by the pods of all jobs.

    Args:
        needs: jobs with pods that train and have no node, and jobs between two epochs, with the time.
        refusals: such jobs with pods for which a scheduler has found no node.
        growths: jobs with a worker that has found a node beyond the others, with the time.
        looking: jobs with workers that look for a node beyond the others.
    """

    needs: tuple[tuple[str, datetime], ...]
    refusals: tuple[tuple[str, datetime], ...]
    growths: tuple[tuple[str, datetime], ...]
    looking: frozenset[str]


def _need(pod: Object) -> tuple[str, str | None]:
    return "".join(controller_uid(pod)), pod["metadata"].get("creationTimestamp")


def _with_times(found: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, datetime], ...]:
    return tuple((job, at) for job, text in found if (at := parse_stamp(text)) is not None)


def _port_claim(job: Object) -> PortClaim:
    created = str(job["metadata"].get("creationTimestamp", ""))
    return PortClaim(claimed_port(job) or 0, created, uid_of(job))
