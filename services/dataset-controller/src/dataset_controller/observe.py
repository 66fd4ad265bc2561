"""Reads only: caches, records of the bus and rare LISTs, gathered into what a plan is made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dataset_controller.domain import names
from dataset_controller.domain.indexes import moving_since
from dataset_controller.domain.names import ENDED, Cond, JobPhase, SetPhase
from dataset_controller.domain.paths import Places
from dataset_controller.domain.samplejob.cache_changes import changes_of, mirrored_at
from dataset_controller.domain.samplejob.credentials import SYNC, has_keys, job_secret_key, run_keys
from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset.model import (
    Children,
    ObservedSet,
    RuntimePod,
    SampleSet,
    mounts_by_csi,
)
from dataset_controller.domain.sampleset.parse import is_ready, parse_runtime_pod, parse_set
from dataset_controller.domain.sampleset.policies.ownership import is_ours
from dataset_controller.domain.sampleset.render import volume_secret_key
from dataset_controller.domain.secrets import SecretSeen
from dataset_controller.domain.sources import RunKeys
from dataset_controller.pod_lists import PodLists, User
from dataset_controller.records import NodeRecords, RunRecords
from dataset_controller.secret_reads import SecretReads
from dataset_controller.timing import (
    MOVED_RUNTIME_TIMEOUT_SECONDS,
    RUNTIME_PODS_TIMEOUT_SECONDS,
    USERS_CHECK_INTERVAL_SECONDS,
    USERS_UNKNOWN_GRACE_SECONDS,
)
from dataset_controller.watch import BY_LABEL, BY_MOVING, BY_OWNER, BY_SET, JOB, MOVING, SET, copy_of
from paddlewheel.contracts.dataset_names import (
    claim_name,
    contract_runtime_name,
    home_label,
    node_label,
    pv_name,
    runtime_name,
    runtime_service_name,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import deleted_at, spec_of
from paddlewheel.contracts.stamps import age
from paddlewheel.core.clock import Clock
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import CSI_DRIVERS, Object
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.watch import Watch

Users = tuple[str, ...] | Trouble
"""Pods that use a set's claim."""


@dataclass(frozen=True)
class _Unused:
    """Monotonic times: first and last look at a set that had no users in between."""

    since: float
    seen_at: float


class Observer:
    """Gathers what is known about one object."""

    def __init__(
        self,
        watch: Watch,
        runs: RunRecords,
        nodes: NodeRecords,
        pods: PodLists,
        reads: Reads,
        places: Places,
        secrets: SecretReads,
        clock: Clock,
        home: str,
    ) -> None:
        self._watch = watch
        self._runs = runs
        self._nodes = nodes
        self._pod_lists = pods
        self._reads = reads
        self._secrets = secrets
        self._clock = clock
        self._home = home
        self._started = clock.monotonic()
        self._users_of: dict[str, tuple[float, tuple[str, ...]]] = {}
        """By uid of the set, with the moment from which they are looked up again."""
        self._unused: dict[str, _Unused] = {}
        """The sets without users at the last check, by uid."""
        self._parse_set: Memo[SampleSet] = Memo(partial(parse_set, places=places))
        self._parse_job: Memo[SampleJob] = Memo(partial(parse_job, places=places))
        self._parse_pod: Memo[RuntimePod | None] = Memo(parse_runtime_pod)

    async def sample_set(self, key: Key, *, figures_due: bool) -> ObservedSet | None:
        """Everything about one set, None when it is gone."""
        obj = self._watch.of(SET).get(key)
        if obj is None:
            return None
        own = self._parse_set(obj)
        runtime = Key(self._home, runtime_name(key.namespace, key.name, self._home))
        old = Key(key.namespace, contract_runtime_name(key.name))
        place = old if self._is_in_old_place(own, runtime, old) else runtime
        kept, is_new = self._kept_users(own), self._needs_new_list(own)
        is_asked = bool(own.deleted_at) or place != runtime
        users = () if not is_asked else await self._users(own, is_new=is_new) if kept is None else kept
        engine = await self._named(own, own.spec.engine_secret if own.spec else None)
        source = await self._named(own, own.spec.source_secret if own.spec else None)
        patient, has_csi = not own.deleted_at, self._has_csi()
        # Also shows whether this service has rights in the namespace of the set.
        old_secret = await self._secrets.read(old, patient=patient)
        new_secret = old_secret if old == runtime else await self._secrets.read(runtime, patient=patient)
        secret, other_secret = (old_secret, new_secret) if place == old else (new_secret, old_secret)
        children = self._children(own, place, _found(secret))
        if place == old:
            children = replace(children, stateful_set=self._old_stateful_set(own, old))
        is_needed = mounts_by_csi(children.volume, has_csi)
        volume_secret = volume_secret_key(children.volume, runtime)
        driver = await self._secrets.read(volume_secret, patient=patient) if is_needed else None
        pods = self._pods(place) if place == runtime else self._remaining(old)
        job_keys = await self._job_keys(key)
        jobs = self._jobs(key)
        return ObservedSet(
            sample_set=own,
            engine_secret=engine,
            source_secret=source,
            children=replace(children, volume_secret=_found(driver)),
            pods=pods,
            nodes=self._nodes_of(key, pods),
            runs=self._runs.of(own.uid),
            reports=self._nodes.of(own.uid),
            replayed=self._nodes.replayed(own.uid),
            job_keys=job_keys,
            cache_changes=changes_of(jobs),
            mirrored_at=mirrored_at(jobs),
            cancelled_runs=frozenset(run for job in jobs for run in job.status.cancelled_runs),
            users=None if isinstance(users, Trouble) else users,
            are_users_fresh=kept is None and is_new,
            unused_since=self._unused_since(own.uid),
            has_csi=has_csi,
            figures_due=figures_due,
            runtime=runtime,
            elsewhere=()
            if old == runtime
            else self._elsewhere(own, runtime, old, place, _found(other_secret)),
            other_moving=self._other_moving(key) if place == old else "",
            are_records_known=self._are_records_known,
            is_runtime_secret_known=not isinstance(secret, Trouble) and not isinstance(driver, Trouble),
            unserved=self._secrets.refusal(old, old_secret),
            troubles=tuple(each for each in (users, driver) if isinstance(each, Trouble)),
        )

    async def sample_job(self, key: Key, *, progress_due: bool) -> ObservedJob | None:
        """Everything about one job, None when it is gone."""
        obj = self._watch.of(JOB).get(key)
        if obj is None:
            return None
        job = self._parse_job(obj)
        secret = await self._secret_of_job(job)
        # Nothing is awaited from here to the plan, so that two jobs of a set cannot both see the other wait.
        found = self._watch.of(SET).get(Key(key.namespace, job.set_name))
        sample_set = None if found is None else self._parse_set(found)
        return ObservedJob(
            job=job,
            sample_set=sample_set,
            secret=secret,
            runs=self._runs.of(sample_set.uid) if sample_set else {},
            recorded=self._runs.find(job.status.run_id) if job.status.run_id else (),
            progress_due=progress_due,
            others=self._others(job),
            are_records_known=self._are_records_known,
            service_age=self._clock.monotonic() - self._started,
        )

    def forget(self, obj: Object) -> None:
        """A watched object is gone."""
        for memo in (self._parse_set, self._parse_job, self._parse_pod):
            memo.forget(obj)
        self._reads.forget(names.POD, key_of(obj))
        self._nodes.forget(uid_of(obj))
        self.forget_users(uid_of(obj))

    def forget_users(self, uid: str) -> None:
        """The set is gone, or another replica looks after it: who uses it then is not seen here."""
        self._users_of.pop(uid, None)
        self._unused.pop(uid, None)

    @property
    def _are_records_known(self) -> bool:
        return self._runs.is_known and self._nodes.is_known

    def _pods(self, runtime: Key) -> tuple[RuntimePod, ...]:
        copy = copy_of(self._watch, names.POD, runtime.namespace)
        parsed = (self._parse_pod(raw) for raw in copy.by_index(BY_SET, str(runtime)))
        return tuple(pod for pod in parsed if pod is not None)

    def _is_in_old_place(self, own: SampleSet, runtime: Key, old: Key) -> bool:
        """The runtime is in the set's namespace, or its last pods end there.

        Nothing there counts beside a StatefulSet in the namespace of the release: users of the set's
        namespace may create objects with these names.
        """
        if old == runtime or self._stateful_set(runtime) is not None:
            return False
        if self._old_stateful_set(own, old) is not None:
            return True
        is_moving = own.status.holds(Cond.RUNTIME_MIGRATION_PENDING)
        may_end_there = own.status.was_mounted or is_moving or bool(own.deleted_at)
        return may_end_there and not self._remaining(runtime) and bool(self._remaining(old))

    def _stateful_set(self, runtime: Key) -> Object | None:
        return copy_of(self._watch, names.STATEFUL_SET, runtime.namespace).get(runtime)

    def _old_stateful_set(self, own: SampleSet, old: Key) -> Object | None:
        """The one of this set. It does not count when it is being deleted, which a finalizer, or a pod on a
        dead node, may delay without end."""
        found = self._stateful_set(old)
        return found if found is not None and is_ours(found, own.uid) and not deleted_at(found) else None

    def _remaining(self, runtime: Key) -> tuple[RuntimePod, ...]:
        """The pods that run, or may still run: the end of a pod on a dead node is never confirmed."""
        overdue = self._clock.now() - timedelta(seconds=RUNTIME_PODS_TIMEOUT_SECONDS)
        return tuple(
            pod
            for pod in self._pods(runtime)
            if not pod.has_ended and not (pod.ends_at and pod.ends_at < overdue and self._is_dead(pod.node))
        )

    def _is_dead(self, node: str) -> bool:
        found = self._watch.of(names.NODE).get(Key("", node))
        return found is None or not is_ready(found)

    def _elsewhere(
        self, own: SampleSet, runtime: Key, old: Key, place: Key, secret: Object | None
    ) -> tuple[tuple[str, Object], ...]:
        """The set's objects in the other of the two places."""
        other = runtime if place == old else old
        service = Key(other.namespace, runtime_service_name(other.name))
        found = (
            (names.STATEFUL_SET, self._stateful_set(other) if self._stateful_set(runtime) else None),
            (names.SECRET, secret),
            (names.SERVICE_KIND, copy_of(self._watch, names.SERVICE_KIND, other.namespace).get(service)),
        )
        return tuple(
            (kind, obj)
            for kind, obj in found
            if obj is not None and is_ours(obj, own.uid) and not deleted_at(obj)
        )

    def _other_moving(self, key: Key) -> str:
        """Another set whose runtime has begun to move a short time ago, "" without one. One that cannot move
        does not hold up the others for long."""
        now = self._clock.now()
        moving = self._watch.of(SET).by_index(BY_MOVING, MOVING)
        recent = (obj for obj in moving if age(moving_since(obj), now) <= MOVED_RUNTIME_TIMEOUT_SECONDS)
        return next((str(other) for other in sorted(map(key_of, recent)) if other != key), "")

    def _has_csi(self) -> bool:
        return self._watch.of(CSI_DRIVERS.kind).get(Key("", names.CSI_DRIVER)) is not None

    def _children(self, own: SampleSet, runtime: Key, secret: Object | None) -> Children:
        """The children without the Secret of the CSI driver."""
        service = Key(runtime.namespace, runtime_service_name(runtime.name))
        claim = self._watch.of(names.CLAIM).get(Key(own.key.namespace, claim_name(own.key.name)))
        return Children(
            volume=self._volume(own, claim),
            claim=claim,
            secret=secret,
            service=copy_of(self._watch, names.SERVICE_KIND, service.namespace).get(service),
            stateful_set=self._stateful_set(runtime),
        )

    def _volume(self, own: SampleSet, claim: Object | None) -> Object | None:
        """The volume that the claim is bound to, else one that the set owns under any name, for example of an
        older version, else the one with the name that a new volume would get."""
        volumes = self._watch.of(names.VOLUME)
        named = volumes.get(Key("", str(spec_of(claim or {}).get("volumeName") or "")))
        owned = volumes.by_index(BY_OWNER, own.uid)
        return (
            named or next(iter(owned), None) or volumes.get(Key("", pv_name(own.key.namespace, own.key.name)))
        )

    def _nodes_of(self, key: Key, pods: tuple[RuntimePod, ...]) -> tuple[Object, ...]:
        """Nodes that carry a label of the set, and those of its pods; by name."""
        nodes = self._watch.of(names.NODE)
        labels = node_label(key.namespace, key.name), home_label(key.namespace, key.name)
        labelled = (node for label in labels for node in nodes.by_index(BY_LABEL, label))
        found = {node["metadata"]["name"]: node for node in labelled}
        for pod in pods:
            if pod.node not in found and (node := nodes.get(Key("", pod.node))) is not None:
                found[pod.node] = node
        return tuple(found[name] for name in sorted(found))

    def _jobs(self, key: Key) -> list[SampleJob]:
        return [self._parse_job(raw) for raw in self._watch.of(JOB).by_index(BY_SET, str(key))]

    def _others(self, job: SampleJob) -> dict[str, SampleJob]:
        namespace, jobs = job.key.namespace, self._watch.of(JOB)
        found = {other.key.name: other for other in self._jobs(Key(namespace, job.set_name))}
        for name in job.spec.after:
            if name not in found and (raw := jobs.get(Key(namespace, name))) is not None:
                found[name] = self._parse_job(raw)
        found.pop(job.key.name, None)
        return found

    async def _job_keys(self, key: Key) -> tuple[RunKeys, ...]:
        active = [job for job in self._jobs(key) if has_keys(job)]
        keys = [run_keys(job, await self._secret_of_job(job)) for job in active]
        return tuple(sorted(filter(None, keys), key=lambda found: found.run))

    async def _named(self, own: SampleSet, secret: Key | None) -> SecretSeen:
        """Read again soon while the set waits for a correction."""
        accepted = own.status.condition(Cond.ACCEPTED)
        is_well = accepted is not None and accepted.status == "True"
        patient = is_well and own.status.phase is not SetPhase.SYNC_FAILED
        return await self._secrets.named(secret, own.key.namespace, patient=patient)

    async def _secret_of_job(self, job: SampleJob) -> SecretSeen:
        """Only a sync that has not ended has use for it. Read again soon while the job waits for it."""
        if job.type != SYNC or job.status.phase in ENDED:
            return None
        accepted = job.status.condition(Cond.ACCEPTED)
        is_well = accepted is not None and accepted.status == "True"
        patient = is_well and job.status.phase is not JobPhase.NEW
        return await self._secrets.named(job_secret_key(job), job.key.namespace, patient=patient)

    def _kept_users(self, own: SampleSet) -> tuple[str, ...] | None:
        """The users of a set that waits are not listed for each report of an agent, which wakes the set."""
        until, users = self._users_of.get(own.uid, (float("-inf"), ()))
        is_recent = self._clock.monotonic() < until
        return users if is_recent and not own.status.holds(Cond.FREE) else None

    def _needs_new_list(self, own: SampleSet) -> bool:
        """A set that had users is content with what others have had listed shortly before."""
        _, users = self._users_of.get(own.uid, (0.0, ()))
        return not users or own.status.holds(Cond.FREE)

    async def _users(self, own: SampleSet, *, is_new: bool) -> Users:
        """Pods that use the claim. They are listed, because few sets need them."""
        claim = claim_name(own.key.name)
        found_claim = self._watch.of(names.CLAIM).get(Key(own.key.namespace, claim))
        may_start = found_claim is not None and not deleted_at(found_claim)
        now = self._clock.monotonic()
        since = now if is_new else now - USERS_CHECK_INTERVAL_SECONDS
        look = partial(self._pod_lists.since, own.key.namespace, since)
        found = await self._reads.attempt(names.POD, own.key, look)
        if isinstance(found, Trouble):
            self._unused.pop(own.uid, None)
            return found
        users = _names_of(found.users.get(claim, ()), may_start=may_start)
        self._users_of[own.uid] = self._clock.monotonic() + USERS_CHECK_INTERVAL_SECONDS, users
        if own.deleted_at:
            self._note_use(own.uid, found.at, is_used=bool(users))
        return users

    def _note_use(self, uid: str, at: float, *, is_used: bool) -> None:
        before = self._unused.pop(uid, None)
        if is_used:
            return
        if before is None or at - before.seen_at > USERS_UNKNOWN_GRACE_SECONDS:
            before = _Unused(at, at)
        self._unused[uid] = replace(before, seen_at=at)

    def _unused_since(self, uid: str) -> datetime | None:
        """The time by the present clock, which may have been set meanwhile."""
        if (unused := self._unused.get(uid)) is None:
            return None
        return self._clock.now() - timedelta(seconds=self._clock.monotonic() - unused.since)


def _found(secret: Object | Trouble | None) -> Object | None:
    return None if isinstance(secret, Trouble) else secret


def _names_of(users: Iterable[User], *, may_start: bool) -> tuple[str, ...]:
    """With `may_start`, pods without a node count, too. Without the claim they can never start."""
    return tuple(sorted(user.name for user in users if may_start or user.is_placed))
