"""This service's watched view of the cluster, and what it has written that the view does not show yet.

A watch is always a little late. An object whose own last write has not come back is `stale`: it is looked at
again in a moment, so that nothing is planned on a past the service itself has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dataset_controller.domain.names import MANAGED_SELECTOR
from dataset_controller.domain.objects import key_of, labels_of, spec_of, status_of, uid_of, version_of
from dataset_controller.domain.samplejob.credentials import job_secret_key
from dataset_controller.domain.sampleset.policies.labels import PREFIX
from dataset_controller.domain.sampleset.spec import engine_secret_key, source_secret_key
from paddlewheel.contracts.dataset_names import node_label
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.ports import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Change,
    Object,
    Resource,
    Watches,
)

PATIENCE = 5.0
"""Seconds after which the view is believed again, should the awaited notice never come."""
REMEMBERED = 4096
"""Writes kept in mind before those past their time are dropped."""
USER_SECRETS = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"
"""The two big kinds of Secrets that nobody names in a SampleSet."""
MANAGED = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, SERVICES, STATEFUL_SETS, PODS)

BY_UID, BY_SECRET, BY_LABEL, BY_SET, BY_RUN = "uid", "secret", "label", "set", "run"

OnChange = Callable[[Resource, Change], None]


class View:
    """Informers of everything a reconcile reads.

    Args:
        namespace: whose objects are served; "" means all.
    """

    def __init__(self, watches: Watches, namespace: str, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[tuple[Resource, Key], tuple[int, float]] = {}
        self._informers = {
            SAMPLE_SETS: Informer(
                watches,
                SAMPLE_SETS,
                namespace,
                clock=clock,
                indexes={BY_UID: _uid, BY_SECRET: _set_secrets, BY_LABEL: _set_label},
            ),
            SAMPLE_JOBS: Informer(
                watches,
                SAMPLE_JOBS,
                namespace,
                clock=clock,
                indexes={BY_SET: _set_of_job, BY_RUN: _run_of_job, BY_SECRET: _job_secret},
            ),
            # A Secret may be named across namespaces.
            SECRETS: Informer(watches, SECRETS, clock=clock, field_selector=USER_SECRETS),
            NODES: Informer(watches, NODES, clock=clock, indexes={BY_LABEL: _set_labels_of_node}),
            CSI_DRIVERS: Informer(watches, CSI_DRIVERS, clock=clock),
            **{r: _managed(watches, r, namespace, clock) for r in MANAGED},
        }

    def of(self, resource: Resource) -> Informer:
        """The watched copy of one resource."""
        return self._informers[resource]

    async def run(self, on_change: OnChange) -> None:
        """Follow everything for ever."""
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._informers.items():
                group.create_task(informer.run(_bind(on_change, resource)))

    async def wait_synced(self) -> None:
        """Return once all copies hold what the cluster holds."""
        for informer in self._informers.values():
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        """Whether they do."""
        return all(informer.synced for informer in self._informers.values())

    def wrote(self, resource: Resource, answer: Object) -> None:
        """The API server answered a write of ours with this object."""
        meta = answer["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            return
        if len(self._written) >= REMEMBERED:
            now = self._clock.monotonic()
            self._written = {place: w for place, w in self._written.items() if w[1] > now}
        version = int(version_of(answer) or 0)
        self._written[resource, key_of(answer)] = (version, self._clock.monotonic() + PATIENCE)

    def is_stale(self, resource: Resource, key: Key) -> bool:
        """The copy is older than our own last write to the object."""
        expected = self._written.get((resource, key))
        if expected is None:
            return False
        version, until = expected
        seen = self.of(resource).get(key)
        if self._clock.monotonic() <= until and (seen is None or int(version_of(seen) or 0) < version):
            return True
        del self._written[resource, key]
        return False


def _managed(watches: Watches, resource: Resource, namespace: str, clock: Clock) -> Informer:
    place = namespace if resource.namespaced else ""
    return Informer(
        watches,
        resource,
        place,
        clock=clock,
        label_selector=MANAGED_SELECTOR,
        indexes={BY_SET: _runtime_of_pod},
    )


def _bind(on_change: OnChange, resource: Resource) -> Callable[[Change], None]:
    return lambda change: on_change(resource, change)


def _uid(obj: Object) -> list[str]:
    return [uid_of(obj)]


def _set_secrets(obj: Object) -> list[str]:
    keys = {engine_secret_key(obj), source_secret_key(obj)}
    return [str(key) for key in keys if key is not None]


def _set_label(obj: Object) -> list[str]:
    key = key_of(obj)
    return [node_label(key.namespace, key.name)]


def _set_of_job(obj: Object) -> list[str]:
    name = (spec_of(obj).get("sampleSetRef") or {}).get("name")
    return [str(Key(key_of(obj).namespace, name))] if name else []


def _run_of_job(obj: Object) -> list[str]:
    run = status_of(obj).get("jobName")
    return [str(run)] if run else []


def _job_secret(obj: Object) -> list[str]:
    key = job_secret_key(obj)
    return [str(key)] if key else []


def _set_labels_of_node(obj: Object) -> list[str]:
    return [name for name in labels_of(obj) if name.startswith(PREFIX)]


def _runtime_of_pod(obj: Object) -> list[str]:
    """Pods by `<namespace>/<set>-runtime`; other kinds have no such label."""
    name = labels_of(obj).get("name")
    return [str(Key(key_of(obj).namespace, name))] if name else []
