"""What a real API server says to volumes of JuiceFS' CSI driver, and to what the driver makes of them.

No CSIDriver is made: the other tests share this server.
"""

from __future__ import annotations

import pytest

from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.parse import resolve_spec
from paddlewheel.contracts.dataset_names import SET_NAME_MAX
from paddlewheel.contracts.keys import Key
from paddlewheel.kube import ports
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.samplesets import make_sample_set

pytestmark = pytest.mark.long

SET = "s" * SET_NAME_MAX


def volume_of(namespace: str) -> Object:
    """Of the longest names."""
    owner = SetIdentity(f"{namespace}-{'n' * 63}"[:63], SET, "uid-1")
    obj = make_sample_set(SET, csi={"juiceFSMountOptions": {"sub-dir": "train/a b", "writeback": True}})
    obj["metadata"]["uid"] = owner.uid
    secret = render.driver_secret_key(Key("paddle-system", "digits-runtime"))
    return render.volume(owner, resolve_spec(obj), secret, claim_uid="claim-uid")


def mount_pod(namespace: str, volume: Object) -> Object:
    """As the driver makes it: the handle is in its name, and the value of a label."""
    handle = volume["spec"]["csi"]["volumeHandle"]
    labels = {"app.kubernetes.io/name": "juicefs-mount", "volume-id": handle}
    meta = {"name": f"juicefs-node-0-{handle}-abcdef", "namespace": namespace, "labels": labels}
    containers = [{"name": "jfs-mount", "image": "mount:1"}]
    return {"metadata": meta, "spec": {"containers": containers, "nodeSelector": {"no": "node"}}}


async def test_volume_and_mount_pod_of_the_longest_names_are_taken(
    cluster: ApiCluster, namespace: str
) -> None:
    volume = volume_of(namespace)
    key = Key("", volume["metadata"]["name"])
    await cluster.create(ports.PERSISTENT_VOLUMES, volume)
    try:
        spec = (await cluster.get(ports.PERSISTENT_VOLUMES, key))["spec"]
        assert {name: spec[name] for name in ("csi", "mountOptions")} == {
            name: volume["spec"][name] for name in ("csi", "mountOptions")
        }
        await cluster.create(ports.PODS, mount_pod(namespace, volume))
    finally:
        await cluster.delete(ports.PERSISTENT_VOLUMES, key)


async def test_an_operator_may_give_a_volume_of_an_older_version_its_options(
    cluster: ApiCluster, namespace: str
) -> None:
    """It has them in its attributes only; docs/tasks/upgrade.md has the command."""
    volume = volume_of(namespace)
    options = volume["spec"].pop("mountOptions")
    key = Key("", volume["metadata"]["name"])
    await cluster.create(ports.PERSISTENT_VOLUMES, volume)
    try:
        patched = await cluster.patch(ports.PERSISTENT_VOLUMES, key, {"spec": {"mountOptions": options}})
        assert patched["spec"]["mountOptions"] == options
    finally:
        await cluster.delete(ports.PERSISTENT_VOLUMES, key)
