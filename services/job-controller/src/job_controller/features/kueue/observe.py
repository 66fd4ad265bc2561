"""Reads the ResourceFlavors and priorities of pods and Workloads that are made now."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.parse import parse_flavor, parse_priority
from job_controller.core.parts import Flavor, Priority
from job_controller.features.kueue.rules import needed_priority, needs_flavors
from job_controller.reading import Reader
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.ports import PRIORITY_CLASSES, RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, Cluster
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads

_PRIORITY_CLASSES = {
    names.PRIORITY_CLASS: PRIORITY_CLASSES,
    names.WORKLOAD_PRIORITY_CLASS: WORKLOAD_PRIORITY_CLASSES,
}


class QueueObjects(Reader):
    """ResourceFlavors and priority classes. Nothing is remembered."""

    def __init__(self, cluster: Cluster, reads: Reads) -> None:
        self._cluster = cluster
        self._reads = reads

    async def read(self, seen: Observed) -> Observed:
        return await self._with_priority(await self._with_flavors(seen))

    async def _with_flavors(self, seen: Observed) -> Observed:
        """The same with the flavors of pods to be made now. No pods are made while there is trouble."""
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
        """Raises Permanent when there is none: without it the job would wait behind others forever."""
        try:
            return parse_priority(kind, await self._cluster.get(_PRIORITY_CLASSES[kind], key))
        except NotFound:
            raise Permanent("NotFound", "the job asks for it; create it, or name another one") from None
