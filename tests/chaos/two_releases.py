"""A cluster with the services of two releases, one replica of each beside the other."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tests.bench.progress import note

from paddlewheel.cli.images import PAUSE, build_archives
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.target import Target, embedded_cluster
from paddlewheel.devcluster.cluster import down, ignore, up
from paddlewheel.devcluster.image_archive import read_archive
from paddlewheel.devcluster.images import IMAGES, build_images
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.charts import REPOSITORY

SERVICES = ("job-controller", "dataset-controller", "trigger-controller", "serving-controller")
"""Of each, one replica of either release."""
OLDER_TAG = "older"
_OLDER_IMAGES = (*SERVICES, "cache-runtime", "bus-auth", "nats")
"""What the chart of the older release runs."""
_RELEASE = "tests.paddlepaddle.org/release"
_VALUES = (
    'servingController.pullPolicy="IfNotPresent"',
    # Replicas of these share their work only where there are several.
    "jobController.replicas=2",
    "servingController.replicas=2",
)


@dataclass(frozen=True)
class Upgrade:
    """Which release is upgraded, from a checkout of it.

    Args:
        reference: commit or tag.
        older: folder with its files.
    """

    reference: str
    older: Path


def check_out(reference: str, folder: Path) -> Upgrade:
    """The files of a release, in a folder that is not there yet."""
    archive = subprocess.run(
        ("git", "-C", str(REPOSITORY), "archive", reference), check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return Upgrade(reference, folder)


@asynccontextmanager
async def side_by_side(upgrade: Upgrade, name: str, folder: Path) -> AsyncIterator[Target]:
    """The older release is installed and then upgraded; its services come back beside the newer ones.

    Args:
        name: of the embedded cluster, which is removed in the end.
        folder: for archives of images.
    """
    archives = await asyncio.to_thread(_archives, upgrade, folder)
    try:
        await asyncio.to_thread(up, ClusterSpec(name, nodes=2), images=archives)
        where = embedded_cluster(name)
        note(f"installing {upgrade.reference}")
        await _install(where, upgrade.older, OLDER_TAG)
        older = [await _deployment(where, service) for service in SERVICES]
        note("upgrading")
        await _install(where, REPOSITORY, "dev")
        await _put_beside(where, older)
        yield where
    finally:
        await asyncio.to_thread(down, name)


def _archives(upgrade: Upgrade, folder: Path) -> list[Path]:
    """Of both releases' images; those of the older one have a tag of their own."""
    note(f"building the images of {upgrade.reference} and of this checkout")
    older = build_images(_OLDER_IMAGES, lambda _: None, repository=upgrade.older)
    newer = build_archives([*IMAGES, PAUSE], ignore)
    # A program of its own, without a release.
    older[PAUSE] = newer[PAUSE]
    return [*newer.values(), *(retagged(path, OLDER_TAG, folder) for path in older.values())]


def retagged(archive: Path, tag: str, folder: Path) -> Path:
    """A copy of an archive whose images have another tag."""
    names = {name: f"{name.rpartition(':')[0]}:{tag}" for name in read_archive(archive).references}
    copied = folder / archive.name
    with tarfile.open(archive) as old, tarfile.open(copied, "w") as new:
        for entry in old:
            content = old.extractfile(entry)
            data = content.read() if content else b""
            if entry.name in ("index.json", "manifest.json"):
                data = _renamed(data, names)
                entry.size = len(data)
            new.addfile(entry, io.BytesIO(data))
    return copied


def _renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    text = data.decode()
    for name, other in names.items():
        text = text.replace(json.dumps(name), json.dumps(other))
    return text.encode()


async def _install(where: Target, checkout: Path, tag: str) -> None:
    settings = [argument for value in (*_VALUES, f'image.tag="{tag}"') for argument in ("--set-json", value)]
    await where.tools.run(
        "helm", "upgrade", "--install", "paddlewheel", str(checkout / "deploy" / "charts" / "paddlewheel"),
        "--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--wait", "--timeout", "5m", *settings,
    )  # fmt: skip


async def _deployment(where: Target, name: str) -> dict[str, Any]:
    command = ("kubectl", "get", "deployment", name, "--namespace", SYSTEM_NAMESPACE, "--output", "json")
    return dict(orjson.loads(await where.tools.run(*command)))


async def _put_beside(where: Target, older: Sequence[Mapping[str, Any]]) -> None:
    """One replica of each release."""
    for service in SERVICES:
        await _kubectl(where, "scale", "deployment", service, "--replicas=1")
    manifests = [_beside(deployment) for deployment in older]
    await _kubectl(where, "apply", "-f", "-", stdin=b"\n---\n".join(map(orjson.dumps, manifests)))
    for manifest in manifests:
        await _kubectl(
            where, "rollout", "status", "deployment", manifest["metadata"]["name"], "--timeout=180s"
        )


def _beside(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The same pods, under another name, found by a label of their own."""
    metadata, spec = deployment["metadata"], copy.deepcopy(deployment["spec"])
    spec["replicas"] = 1
    spec["selector"]["matchLabels"][_RELEASE] = OLDER_TAG
    spec["template"]["metadata"]["labels"][_RELEASE] = OLDER_TAG
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"{metadata['name']}-{OLDER_TAG}",
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
        },
        "spec": spec,
    }


@dataclass(frozen=True)
class Replica:
    """A pod of a service that is alive."""

    service: str
    is_older: bool
    pod: str
    restarts: int
    is_ready: bool

    def __str__(self) -> str:
        return f"{self.service} of the {'older' if self.is_older else 'newer'} release"


async def replicas(where: Target) -> list[Replica]:
    """Pods of the services."""
    found = orjson.loads(await _kubectl(where, "get", "pods", "--output", "json"))["items"]
    return [
        _replica(pod) for pod in found if pod["metadata"]["labels"].get("app.kubernetes.io/name") in SERVICES
    ]


def _replica(pod: Mapping[str, Any]) -> Replica:
    labels, status = pod["metadata"]["labels"], pod["status"]
    return Replica(
        labels["app.kubernetes.io/name"],
        labels.get(_RELEASE) == OLDER_TAG,
        pod["metadata"]["name"],
        restarts=sum(each["restartCount"] for each in status.get("containerStatuses", ())),
        is_ready="deletionTimestamp" not in pod["metadata"]
        and any(
            each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ())
        ),
    )


async def kill(where: Target, replica: Replica) -> None:
    """Without the time to say good-bye; its Deployment makes another one."""
    await _kubectl(where, "delete", "pod", replica.pod, "--grace-period=0", "--force", "--wait=false")


async def metrics(where: Target, replica: Replica) -> str:
    """As Prometheus would read them."""
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/{replica.pod}:8080/proxy/metrics"
    return await where.tools.run("kubectl", "get", "--raw", path)


async def logs(where: Target, replica: Replica) -> str:
    """What it has written."""
    return await _kubectl(where, "logs", replica.pod)


async def _kubectl(where: Target, *arguments: str, stdin: bytes | None = None) -> str:
    return await where.tools.run("kubectl", "--namespace", SYSTEM_NAMESPACE, *arguments, stdin=stdin)
