"""Reads only: caches and rare GETs, gathered into what a plan is made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain

from job_controller.core import names
from job_controller.core.environment import epoch_of
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options, with_pods
from job_controller.core.parse import parse_job, parse_pod_group, parse_workload
from job_controller.core.phase import missing_pods, needs_config_name, service_names
from job_controller.core.plan import adjusted, decide_gate
from job_controller.core.pods import Pod
from job_controller.features import FEATURES, with_features
from job_controller.features.gang.children import CHILD
from job_controller.features.kueue.rules import workload_key
from job_controller.last_seen import Departures, Endings
from job_controller.rank_delays import RankDelays
from job_controller.reading import Reader, Sources
from job_controller.watch import BY_OWNER, JOB, owner_of
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.objects import controller_uid, id_of, uid_of
from paddlewheel.kube.ports import CONFIG_MAPS, Change, Cluster, Object
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.watch import Watch

FOREIGN = "exists and does not belong to this job; delete it or rename the job"


class JobObserver:
    """Gathers everything that the decision about one job depends on.

    Args:
        cluster: where objects are read that are not watched.
        reads: backs off for objects that cannot be read.
        gang_scheduling: Auto, None, Volcano or Native.
        since: when this service began to receive reports of progress.
    """

    def __init__(
        self,
        watch: Watch,
        cluster: Cluster,
        reads: Reads,
        clock: Clock,
        options: Options,
        gang_scheduling: str,
        *,
        since: datetime | None = None,
    ) -> None:
        self._watch = watch
        self._gang_scheduling = gang_scheduling
        self._since = since
        self._parse_job: Memo[Job] = Memo(parse_job)
        self._endings = Endings(clock)
        self._departures = Departures(watch.of(JOB), self._endings.parse)
        self._delays = RankDelays(clock)
        self._configs = Configs(cluster, reads, clock, options)
        sources = Sources(watch, cluster, reads, clock, self.parsed, self._pods, options.gate_url)
        self._by_feature = {listed.feature: listed.readers(sources) for listed in FEATURES}
        self._in_use: dict[Key, list[Reader]] = {}
        """The readers of the last pass over each job. A reader that is no longer needed forgets the job."""
        self._readers = (
            # Before the ends of pods are forgotten.
            self._departures,
            self._endings,
            self._delays,
            *chain.from_iterable(self._by_feature.values()),
            self._configs,
        )

    async def observe(self, key: Key) -> Observed | None:
        """None when the job is gone. Raises Permanent when it cannot be parsed."""
        seen = self._with_caches(key)
        if seen is None:
            return None
        applying = (*self._applying(seen), self._configs)
        readers = [reader for reader in applying if seen.job.is_live or reader.reads_ended_jobs]
        for reader in self._in_use.pop(key, ()):
            if reader not in readers:
                reader.forget(key, seen.job.uid)
        self._in_use[key] = readers
        for reader in readers:
            seen = await reader.read(seen)
        return seen

    def heard(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        for reader in self._readers:
            reader.heard(kind, change)
        if change.type == "DELETED":
            self._parse_job.forget(change.obj)

    def received(self, delivery: Delivery) -> None:
        """A fact of another service has come."""
        for reader in self._readers:
            reader.received(delivery)

    def applied(self, seen: Observed, applied: Applied) -> None:
        """The actions of the pass with that observation were tried."""
        for reader in self._readers:
            reader.applied(seen, applied)

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        """This status was written after that observation."""
        for reader in self._readers:
            reader.recorded(seen, status)

    def forget_job(self, key: Key, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
        self._in_use.pop(key, None)
        for reader in self._readers:
            reader.forget(key, job_uid)

    def _with_caches(self, key: Key) -> Observed | None:
        """All caches, as they are at one time."""
        obj = self._watch.of(JOB).get(key)
        if obj is None:
            return None
        job = self._parse_job(obj)
        services, setting = self._services(job), self._gang_scheduling
        seen = Observed(job, services=services, listening_since=self._since, gang_scheduling=setting)
        if job.status.restarts:
            seen = self._delays.cached(seen)
        seen = self._with_config(with_pods(seen, self._pods(job), self._departures.of(job.uid)))
        seen = self._with_workload(self._with_pod_groups(seen))
        if job.is_live:
            seen = self._with_former(seen)
        seen = with_features(seen)
        for reader in self._applying(seen):
            seen = reader.cached(seen)
        return seen

    def _applying(self, seen: Observed) -> Iterator[Reader]:
        return chain.from_iterable(self._by_feature[feature] for feature in seen.features)

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
        # Another replica, which has read the job later, has made one of a newer epoch.
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

    def parsed(self, obj: Object) -> Job | None:
        """None for a job that cannot be read, which its own pass reports."""
        try:
            return self._parse_job(obj)
        except Permanent:
            return None


class Configs(Reader):
    """Looks for a foreign ConfigMap, which is not watched without our label. Nothing is remembered."""

    def __init__(self, cluster: Cluster, reads: Reads, clock: Clock, options: Options) -> None:
        self._cluster = cluster
        self._reads = reads
        self._clock = clock
        self._options = options

    async def read(self, seen: Observed) -> Observed:
        """Before the first pods of a job are made, which could never start beside a foreign ConfigMap."""
        if seen.trouble is not None or not needs_config_name(seen) or not self._may_get_pods(seen):
            return seen
        key = seen.job.key
        found = await self._reads.attempt(names.CONFIG_MAP, key, partial(self._check_config, seen.job))
        if found is None:
            return seen
        return replace(seen, trouble=found, retry_after=self._reads.retry_after(names.CONFIG_MAP, key))

    def _may_get_pods(self, seen: Observed) -> bool:
        """No gate is closed. All else that this depends on was read before."""
        return decide_gate(adjusted(seen, self._options, self._clock.now())).is_open

    async def _check_config(self, job: Job) -> None:
        """Raises Permanent for a ConfigMap that is neither the job's nor that of a former one of its name."""
        try:
            found = await self._cluster.get(CONFIG_MAPS, job.key)
        except NotFound:
            return
        if controller_uid(found) != [job.uid] and owner_of(found) != job.key:
            raise Permanent(Reason.OWNED_BY_ANOTHER, FOREIGN)

    def forget(self, key: Key, job_uid: str) -> None:
        self._reads.forget(names.CONFIG_MAP, key)
