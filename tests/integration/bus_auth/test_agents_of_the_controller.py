"""From a SampleSet to an agent on the bus: the pod that dataset-controller makes, and its token.

API server, StatefulSet controller, NATS, bus-auth and dataset-controller are real. There is no kubelet: the
test asks for the token that the pod's volume describes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.bus.admin.set_writes import write_prefix
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.ports import PODS, SAMPLE_SETS, SECRETS, STATEFUL_SETS
from paddlewheel.testkit.bus_auth import BusAuthStand
from paddlewheel.testkit.chart_bus import BUS_CA
from paddlewheel.testkit.samplesets import make_sample_set, make_secret
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long


async def test_the_pods_of_a_set_are_its_agents_and_no_key_reaches_their_namespace(
    own_stand: BusAuthStand,
) -> None:
    token = own_stand.folder / "dataset-controller-token"
    token.write_text(await own_stand.allow_role("dataset-controller"))
    team = await own_stand.namespace()
    controller = Service(
        "dataset_controller", environment(own_stand, team, token), own_stand.folder / "controller.log"
    )
    await controller.start()
    try:
        async with own_stand.installed():
            await own_stand.create(SECRETS, make_secret("digits", team))
            found = await own_stand.cluster.create(SAMPLE_SETS, make_sample_set("digits", team))
            uid = found["metadata"]["uid"]
            pod = await eventually(lambda: pod_of(own_stand), what=controller.log.read_text())

            # As the kubelet does.
            [volume] = [v for v in pod["spec"]["volumes"] if v["name"] == "bus"]
            [wanted] = [
                s["serviceAccountToken"] for s in volume["projected"]["sources"] if "serviceAccountToken" in s
            ]
            account = pod["spec"]["serviceAccountName"]
            shown = await own_stand.token(
                account,
                own_stand.home,
                audience=wanted["audience"],
                pod=pod,
                seconds=wanted["expirationSeconds"],
            )
            async with own_stand.enter("cache-runtime", shown, prefix=agent_inbox(uid)) as agent:
                own = f"{write_prefix(uid)}.$KV.{NODES_BUCKET}.{uid}.0"
                assert not await agent.refused_to_publish(own)
                assert await agent.refused_to_publish(own.replace(uid, "another"))

            secrets = await own_stand.cluster.list(SECRETS, team)
            assert [secret["metadata"]["name"] for secret in secrets] == ["digits"]
    finally:
        await controller.kill()
        await remove(own_stand, team)


def environment(stand: BusAuthStand, namespace: str, token: Path) -> dict[str, str]:
    """As the chart sets it with `nats.auth=tokens`."""
    authority = str(stand.bus.folder / BUS_CA)
    settings = {
        "KUBECONFIG": stand.kubeconfig,
        "NATS_URL": stand.bus.url.replace("127.0.0.1", "localhost"),
        "NATS_TLS_DIR": authority,
        "NATS_TOKEN_FILE": str(token),
        "RUNTIME_NATS_AUTHORITY": "bus-ca",
        "NAMESPACE": namespace,
        "POD_NAMESPACE": stand.home,
        "HTTP_PORT": "0",
    }
    return {**os.environ, **{f"DATASET_CONTROLLER_{name}": value for name, value in settings.items()}}


async def pod_of(stand: BusAuthStand) -> dict[str, Any] | None:
    """The first pod of the set's runtime."""
    pods = await stand.cluster.list(PODS, stand.home)
    return next((pod for pod in pods if "runtime" in pod["metadata"]["name"]), None)


async def remove(stand: BusAuthStand, namespace: str) -> None:
    """Its finalizer is nobody's any more."""
    key = Key(namespace, "digits")
    try:
        await stand.cluster.patch(SAMPLE_SETS, key, {"metadata": {"finalizers": None}})
    except NotFound:
        return
    await stand.cluster.delete(SAMPLE_SETS, key)
    for each in await stand.cluster.list(STATEFUL_SETS, stand.home):
        await stand.cluster.delete(STATEFUL_SETS, Key(stand.home, each["metadata"]["name"]))
