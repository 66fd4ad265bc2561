"""Removes the runtime of a set that is gone, for example because its finalizer was removed by force.

The objects are in the namespace of the release, so the garbage collector does not remove them with the set.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from dataset_controller.domain import names
from dataset_controller.domain.sampleset.policies.ownership import is_left_over
from dataset_controller.domain.sampleset.render import driver_secret_key
from dataset_controller.watch import SET
from paddlewheel.contracts.dataset_names import runtime_name, runtime_service_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import SAMPLE_SETS, SECRETS, SERVICES, STATEFUL_SETS, Cluster, Resource
from paddlewheel.operator.watch import Watch

log = structlog.get_logger(__name__)


class Orphans:
    """The runtime of one set.

    Args:
        namespace: the namespace of the sets that this service has; "" means all.
        home: the namespace of the release.
    """

    def __init__(self, cluster: Cluster, watch: Watch, namespace: str, home: str) -> None:
        self._cluster, self._watch, self._namespace, self._home = cluster, watch, namespace, home

    async def remove(self, key: Key) -> None:
        """Delete the objects of the set with this key, unless the set exists. Raises Retry or Permanent."""
        runtime = Key(self._home, runtime_name(key.namespace, key.name, self._home))
        service = Key(self._home, runtime_service_name(runtime.name))
        known = (
            self._watch.of(names.STATEFUL_SET).get(runtime),
            self._watch.of(names.SERVICE_KIND).get(service),
        )
        is_served = self._namespace in ("", key.namespace)
        if not is_served or not any(known) or await self._exists(key):
            return
        # The Service is last: while it exists, a removal that failed is repeated.
        await self._delete(STATEFUL_SETS, runtime, key)
        await self._delete(SECRETS, runtime, key)
        await self._delete(SECRETS, driver_secret_key(runtime), key)
        await self._delete(SERVICES, service, key)

    async def _exists(self, key: Key) -> bool:
        """Asks the API server: the watch may be behind."""
        if self._watch.of(SET).get(key) is not None:
            return True
        try:
            await self._cluster.get(SAMPLE_SETS, key)
        except NotFound:
            return False
        return True

    async def _delete(self, resource: Resource, key: Key, owner: Key) -> None:
        with suppress(NotFound):
            found = await self._cluster.get(resource, key)
            if is_left_over(found, owner, uid=""):
                log.info("removes what a set has left", kind=resource.kind, set=str(owner))
                await self._cluster.delete(resource, key, uid=uid_of(found))
