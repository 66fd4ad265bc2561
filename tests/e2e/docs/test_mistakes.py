"""The ten most likely mistakes of a new user: what they see, as docs/mistakes.md shows it.

With PADDLEWHEEL_UPDATE_DOCS=1 the test writes the page.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import yaml
from tests.e2e.docs.pages import ROOT

from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.target import Target
from paddlewheel.docs.markdown import table
from paddlewheel.testkit.wait import eventually

PAGE = ROOT / "docs" / "mistakes.md"
BEGIN, END = "<!-- begin: made by tests/e2e/docs/test_mistakes.py -->\n", "<!-- end -->"
NAMESPACE = "mistakes"
IMAGE = "paddlewheel/paddle-cpu:dev"
STORE = "seaweedfs.paddle-demo.svc:8333"
KEYS = {"access-key": "paddle-demo", "secret-key": "paddle-demo-secret"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
"""Seconds. The first test waits until the cluster is running and the demo has ended."""


@dataclass(frozen=True)
class Mistake:
    """A mistake, and where it shows: the object, its reason, and a part of its message."""

    what: str
    kind: str
    name: str
    reason: str
    manifests: tuple[dict[str, Any], ...]
    says: str = ""


def manifest(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    group = {"Secret": "v1", "PaddleJob": "batch.paddlepaddle.org/v1"}
    api_version = group.get(kind, "batch.paddlepaddle.org/v1alpha1")
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def job(name: str, *, spec: Mapping[str, Any] | None = None, restart: str = "Never", **container: Any) -> Any:
    main = {"name": "main", "image": IMAGE, "command": ["sleep", "1"], **container}
    template = {"spec": {"restartPolicy": restart, "containers": [main]}}
    return manifest("PaddleJob", name, spec={**(spec or {}), "worker": {"replicas": 1, "template": template}})


def data_set(name: str, bucket: str, secret: str) -> dict[str, Any]:
    source = {"uri": f"minio://{STORE}/{bucket}/", "secretRef": {"name": secret}}
    return manifest(
        "SampleSet", name, spec={"partitions": 1, "secretRef": {"name": secret}, "source": source}
    )


def secret(name: str, database: int) -> dict[str, Any]:
    volume = {
        "name": name,
        "storage": "minio",
        "bucket": f"http://{STORE}/juicefs",
        "metaurl": f"redis://:paddle-demo-secret@redis.paddle-demo.svc:6379/{database}",
    }
    return manifest("Secret", name, stringData={**volume, **KEYS})


def waits_for(name: str) -> dict[str, Any]:
    return {"sampleSetRef": {"name": name, "mountPath": "/data"}}


MISTAKES = (
    Mistake(
        "wrong image", "paddlejob", "image", "ImagePullBackOff",
        (job("image", image="127.0.0.1:5000/absent:1"),),
    ),
    Mistake(
        "more CPUs than any node has", "paddlejob", "cpu", "Unschedulable",
        (job("cpu", resources={"requests": {"cpu": "500"}}),),
    ),
    Mistake(
        "a program that fails", "paddlejob", "fails", "PodFailed",
        (job("fails", command=["python", "train.py"]),),
    ),
    Mistake(
        "the same, restarted again and again", "paddlejob", "crash", "CrashLoopBackOff",
        (job("crash", command=["python", "train.py"], restart="OnFailure"),),
    ),
    Mistake(
        "a data set that does not exist", "paddlejob", "no-set", "SampleSetNotFound",
        (job("no-set", spec=waits_for("imagenet")),),
    ),
    Mistake(
        "a Secret that does not exist", "sampleset", "no-secret", "SecretNotFound",
        (data_set("no-secret", "digits", "absent"),),
    ),
    Mistake(
        "a bucket that does not exist", "sampleset", "bucket", "SyncFailed",
        (secret("bucket", 7), data_set("bucket", "absent", "bucket")),
    ),
    Mistake(
        "a job that waits for that data set", "paddlejob", "waits", "SampleSetFailed",
        (job("waits", spec=waits_for("bucket")),),
        says="it is SyncFailed",
    ),
)  # fmt: skip
TYPO = job("typo", imagee=IMAGE)


async def test_what_a_user_sees_is_what_the_page_shows(demo: Target) -> None:
    manifests = [each for mistake in MISTAKES for each in mistake.manifests]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    served = yaml.safe_load(repo_file("examples/digits/access.yaml").read_text())
    served["metadata"]["namespace"] = NAMESPACE
    await apply(demo, namespace, served, *manifests)
    try:
        seen = await asyncio.gather(*(look(demo, mistake) for mistake in MISTAKES))
        commands = await asyncio.gather(*command_rows(demo))
    finally:
        await demo.tools.run("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")
    head = ("mistake", "you look at", "you see")
    shown = "\n".join(table(head, [*seen, *commands]))
    text = PAGE.read_text()
    wanted = text[: text.index(BEGIN) + len(BEGIN)] + shown + text[text.index(END) :]
    if os.environ.get("PADDLEWHEEL_UPDATE_DOCS"):
        PAGE.write_text(wanted)
    assert text == wanted


async def apply(where: Target, *objects: dict[str, Any]) -> str:
    body = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return await where.tools.run("kubectl", "apply", "-f", "-", stdin=body)


async def look(where: Target, mistake: Mistake) -> tuple[str, str, str]:
    """Once the reason is there."""
    get = ("kubectl", "get", mistake.kind, mistake.name, "--namespace", NAMESPACE, "-o", "json")
    status: dict[str, Any] = {}

    async def is_explained() -> bool:
        status.update(orjson.loads(await where.tools.run(*get)).get("status") or {})
        message = str(status.get("message") or "")
        return status.get("reason") == mistake.reason and bool(message) and mistake.says in message

    await eventually(
        is_explained, within=180, every=1, what=f"{mistake.name}: {mistake.reason}, not {status}"
    )
    text = f"{status['phase']}, {status['reason']}: {normalized(status['message'])}"
    return mistake.what, f"`kubectl get {mistake.kind} {mistake.name} -o wide`", f"`{text}`"


def command_rows(where: Target) -> list[Any]:
    return [
        refused(
            "a misspelt field", "kubectl apply -f -", {"KUBECONFIG": where.kubeconfig}, orjson.dumps(TYPO)
        ),
        refused(
            "the kubeconfig of a cluster that is gone", "paddlewheel events", {"KUBECONFIG": "/tmp/gone"}
        ),
        refused("no bus at that address", "paddlewheel bus status", {"NATS_URL": "nats://127.0.0.1:1"}),
    ]


async def refused(
    what: str, command: str, settings: Mapping[str, str], stdin: bytes = b""
) -> tuple[str, str, str]:
    """Standard error of a command that must fail."""
    program, *arguments = command.split()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv" / "bin" / program),
        *arguments,
        env={**kept, **settings},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        _, said = await process.communicate(stdin)
    assert process.returncode == 1
    shown = "" if stdin else "".join(f"{name}={value} " for name, value in settings.items())
    return what, f"`{shown}{command}`", f"`{normalized(said.decode())}`"


def normalized(text: str) -> str:
    """Without what differs from run to run: the network's own words, ids of requests."""
    text = re.sub(r"RequestID: \w+", "RequestID: ...", text)
    text = re.sub(r'(cannot pull image "[^"]*").*', r"\1: ...", " ".join(text.split()))
    return text.replace("`", "'")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_reason_is_found_by_searching_the_documentation(mistake: Mistake) -> None:
    assert mistake.reason in (ROOT / "docs" / "reference" / "conditions.md").read_text()
