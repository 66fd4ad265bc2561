"""The demo's data and objects: storage, the digits as PNG files, and the manifests of examples/digits."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import yaml

from paddlewheel.cli.demo.model import Applied, DemoOptions
from paddlewheel.cli.demo.view import View
from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.tools import Tools, run

NAMESPACE = "paddle-demo"
SAMPLE_SET = "digits"
JOB = "digits"
SERVICE = "digits"
ACCESS_KEY = "paddle-demo"
SECRET_KEY = "paddle-demo-secret"  # noqa: S105  the throwaway key of the demo's own object store


async def start_storage(tools: Tools, view: View) -> None:
    """Start a new Redis and a new object store, without data of an earlier run."""
    view.progress("removing objects of an earlier run", 0.1)
    await _remove_workload(tools)
    view.progress("starting Redis and the object store", 0.5)
    await tools.run(
        "helm", "upgrade", "--install", "demo-storage", str(repo_file("deploy/charts/demo-storage")),
        "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m",
        "--set", f"runId=r{os.urandom(4).hex()}",
    )  # fmt: skip


async def _remove_workload(tools: Tools) -> None:
    batch = (f"{kind}.batch.paddlepaddle.org" for kind in ("paddlejobs", "samplejobs", "samplesets"))
    kinds = ",".join(("paddleservices.elasticserving.paddlepaddle.org", *batch))
    await tools.run(
        "kubectl", "delete", kinds, "--all", "--namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s"
    )


async def upload_digits(tools: Tools, options: DemoOptions, view: View) -> None:
    """Write the digits as PNG files and put them into the object store."""
    with tempfile.TemporaryDirectory() as folder:
        view.progress("writing PNG files", 0.1)
        script = str(repo_file("examples/digits/make_digits.py"))
        await run([sys.executable, script, "--output", folder, "--limit", str(options.digits)])
        view.progress("uploading", 0.4)
        async with port_forward(tools, NAMESPACE, "svc/seaweedfs", 8333) as port:
            await _upload(Path(folder), port)


async def _upload(folder: Path, port: int) -> None:
    store = f"minio://{ACCESS_KEY}:{SECRET_KEY}@127.0.0.1:{port}/digits/"
    await run(["juicefs", "sync", "--threads", "16", f"{folder}/", store])


async def apply_workload(tools: Tools, options: DemoOptions) -> Applied:
    """Apply the data set and the job together: the job waits until its data is ready."""
    manifests = [
        manifest for name in ("access", "secret", "sampleset", "paddlejob") for manifest in _load(name)
    ]
    script = repo_file("examples/digits/train.py").read_text()
    manifests.insert(0, _config_map("digits-train", {"train.py": script}))
    _set_epochs(manifests, options.epochs)
    text = b"\n---\n".join(orjson.dumps(manifest) for manifest in manifests)
    await tools.run("kubectl", "apply", "--namespace", NAMESPACE, "-f", "-", stdin=text)
    return Applied(await _uid(tools, "sampleset", SAMPLE_SET), await _uid(tools, "paddlejob", JOB))


def _load(name: str) -> list[dict[str, Any]]:
    text = repo_file(f"examples/digits/{name}.yaml").read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def _config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _set_epochs(manifests: list[dict[str, Any]], epochs: int) -> None:
    job = next(m for m in manifests if m["kind"] == "PaddleJob")
    container = job["spec"]["worker"]["template"]["spec"]["containers"][0]
    container.setdefault("env", []).append({"name": "EPOCHS", "value": str(epochs)})


async def _uid(tools: Tools, kind: str, name: str) -> str:
    return await tools.run("kubectl", "get", kind, name, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
