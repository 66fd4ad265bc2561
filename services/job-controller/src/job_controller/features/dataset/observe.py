"""Reads the data sets of jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.parse import parse_sample_set
from job_controller.core.parts import SampleSet
from job_controller.features.dataset.rules import needs_sample_set
from job_controller.reading import Reader
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.ports import SAMPLE_SETS, Cluster
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads


class SampleSets(Reader):
    """Data sets are not watched, since the bus reports when one changes.

    Which data sets were ready is remembered until the next fact about them. After a restart, each is read
    again.
    """

    def __init__(self, cluster: Cluster, reads: Reads) -> None:
        self._cluster = cluster
        self._reads = reads
        self._used: dict[Key, Key] = {}
        """The data set of each job."""
        self._users: Counter[Key] = Counter()
        """The number of jobs of each data set."""
        self._well_sets: set[Key] = set()
        self._reads_in_time: defaultdict[Key, set[object]] = defaultdict(set)
        """Reads under way, without those during which a fact about the data set came."""

    async def read(self, seen: Observed) -> Observed:
        key, ref = seen.job.key, seen.job.sample_set
        if self._used.get(key) != ref:
            self.forget(key, seen.job.uid)
            if ref is not None:
                self._used[key] = ref
                self._users[ref] += 1
        if needs_sample_set(seen):
            return await self._with_sample_set(seen)
        if self._may_be_ill(seen.job):
            return replace(seen, sample_set=(await self._with_sample_set(seen)).sample_set)
        return seen

    async def _with_sample_set(self, seen: Observed) -> Observed:
        ref = seen.job.sample_set
        if ref is None:
            return seen
        this = object()
        self._reads_in_time[ref].add(this)
        found = await self._reads.attempt(names.SAMPLE_SET, ref, partial(self._find_sample_set, ref))
        is_in_time = self._is_in_time(ref, this)
        if isinstance(found, Trouble):
            return replace(seen, trouble=found, retry_after=self._reads.retry_after(names.SAMPLE_SET, ref))
        # A fact that came meanwhile may be newer than the answer.
        if (found is None or found.is_well) and is_in_time and ref in self._users:
            self._well_sets.add(ref)
        return replace(seen, sample_set=found)

    def _is_in_time(self, ref: Key, read: object) -> bool:
        """No fact about the data set came during the read, which is over."""
        others = self._reads_in_time.pop(ref, set())
        if others - {read}:
            self._reads_in_time[ref] = others - {read}
        return read in others

    def forget(self, key: Key, job_uid: str) -> None:
        ref = self._used.pop(key, None)
        if ref is None:
            return
        self._users[ref] -= 1
        if not self._users[ref]:
            del self._users[ref]
            self._well_sets.discard(ref)
            self._reads.forget(names.SAMPLE_SET, ref)

    def _may_be_ill(self, job: Job) -> bool:
        """The job's data set was not seen ready since the last fact about it."""
        return job.sample_set is not None and not job.status.final and job.sample_set not in self._well_sets

    def received(self, delivery: Delivery) -> None:
        """A data set is read again after each fact about it."""
        if ref := getattr(delivery.event.data, "sample_set", None):
            key = Key(ref.namespace, ref.name)
            self._reads_in_time.pop(key, None)
            self._well_sets.discard(key)

    async def _find_sample_set(self, ref: Key) -> SampleSet | None:
        try:
            return parse_sample_set(await self._cluster.get(SAMPLE_SETS, ref))
        except NotFound:
            return None
