"""The chart's rights on `finalizers`, where the API server asks for them, as OpenShift's does.

Who makes an object that blocks the deletion of its owner needs the right to update the owner's finalizers.
The admission plugin asks the authorizer itself, so no audit log tells of it (tests/rights/reviewed.py).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.devcluster.control_plane import control_plane as plane_of
from paddlewheel.devcluster.state import load_record
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import owner_reference
from paddlewheel.kube.ports import (
    CONFIG_MAPS,
    PADDLE_JOBS,
    PADDLE_SERVICES,
    PERSISTENT_VOLUME_CLAIMS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SERVICES,
    TRIGGERS,
    Object,
    Resource,
)
from paddlewheel.testkit.bus_auth import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from paddlewheel.testkit.kubernetes import install, own_control_plane
from paddlewheel.testkit.paddlejobs import make_paddle_job
from paddlewheel.testkit.paddleservices import make_service
from paddlewheel.testkit.rights import Right, everywhere, granted
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

LEARNS_WITHIN = 90.0
"""Seconds; the plugin looks every 30 s which kinds there are."""

TAKEN, REFUSED = "", "resource you can't set finalizers on"
"""What the API server says."""


@dataclass(frozen=True)
class Row:
    """A service's account, an owner, and a child that the service makes of it."""

    account: str
    owners: Resource
    owner: Object
    children: Resource
    child: Object


HEADLESS: Object = {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
CLAIM: Object = {"spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}
ROWS = (
    Row("job-controller", PADDLE_JOBS, make_paddle_job(), CONFIG_MAPS, {}),
    Row("dataset-controller", SAMPLE_SETS, make_sample_set(), PERSISTENT_VOLUME_CLAIMS, CLAIM),
    Row("serving-controller", PADDLE_SERVICES, make_service(), SERVICES, HEADLESS),
    Row("trigger-controller", TRIGGERS, make_trigger(), SAMPLE_JOBS, make_sample_job()),
)


@pytest.fixture(scope="module")
def control_plane(test_run: TestRun) -> Iterator[Cluster]:
    with own_control_plane(test_run, "owners", strict_owners=True) as started:
        yield started


@pytest.fixture(scope="module")
def api_server(control_plane: Cluster, pytestconfig: pytest.Config) -> str:
    crds = pytestconfig.rootpath / "deploy/charts/paddlewheel/files/crds"
    asyncio.run(install(str(control_plane.kubeconfig), crds))
    return str(control_plane.kubeconfig)


@pytest.fixture
async def owner(row: Row, cluster: ApiCluster, namespace: str) -> Object:
    """Nobody reconciles it."""
    made = {**row.owner, "metadata": {"name": "owner", "namespace": namespace}}
    return await cluster.create(row.owners, made)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.account)
async def test_a_child_is_refused_without_the_right_on_its_owners_finalizers_and_taken_with_it(
    row: Row, owner: Object, cluster: ApiCluster, control_plane: Cluster
) -> None:
    rights = frozenset(right for right in granted(everywhere()) if right.account == row.account)
    finalizers = Right(row.account, row.owners.group, f"{row.owners.plural}/finalizers", "update")
    assert finalizers in rights
    whole = await user_with(cluster, control_plane, rights)
    await eventually(
        lambda: is_answered(whole, row, owner, TAKEN),
        within=LEARNS_WITHIN,
        every=1,
        what="the child is taken",
    )
    poorer = await user_with(cluster, control_plane, rights - {finalizers})
    await eventually(
        lambda: is_answered(poorer, row, owner, REFUSED), within=LEARNS_WITHIN, every=1, what="it is refused"
    )


async def is_answered(kubeconfig: str, row: Row, owner: Object, wanted: str) -> bool:
    """Whether the creation of a child ends so. The roles of a new user take a moment to be in force."""
    metadata: dict[str, Any] = {"name": "child", "namespace": owner["metadata"]["namespace"]}
    child = {**row.child, "metadata": {**metadata, "ownerReferences": [owner_reference(owner, row.owners)]}}
    key = Key(metadata["namespace"], "child")
    async with await connect(kubeconfig) as api:
        try:
            await api.create(row.children, child)
        except Permanent as error:
            return wanted != TAKEN and wanted in error.message
        await api.delete(row.children, key)
        return wanted == TAKEN


async def user_with(cluster: ApiCluster, control_plane: Cluster, rights: frozenset[Right]) -> str:
    """Kubeconfig of a new user with these rights everywhere."""
    name = f"owners-{uuid.uuid4().hex[:8]}"
    rules = [{"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]} for r in sorted(rights)]
    await cluster.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": CLUSTER_ROLES.group, "kind": "User", "name": name}
    await cluster.create(
        CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    )
    record = load_record(control_plane.dirs)
    assert record is not None
    return str(plane_of(control_plane.dirs, record).kubeconfig(name, name))
