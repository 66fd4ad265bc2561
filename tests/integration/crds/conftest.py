"""Asking the API server what it thinks of a manifest, in the way a user does."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlewheel.testkit.wait import eventually

KUBECTL = Path(sys.executable).with_name("kubectl")
GOOD = """
PaddleJob:
  apiVersion: batch.paddlepaddle.org/v1
  kind: PaddleJob
  metadata: {name: job, namespace: default}
  spec:
    worker: {replicas: 2, template: {spec: {containers: [{name: main, image: "example/train:1"}]}}}
SampleSet:
  apiVersion: batch.paddlepaddle.org/v1alpha1
  kind: SampleSet
  metadata: {name: set, namespace: default}
  spec: {partitions: 1, source: {uri: "s3://bucket.s3.example.com/x"}, secretRef: {name: engine}}
SampleJob:
  apiVersion: batch.paddlepaddle.org/v1alpha1
  kind: SampleJob
  metadata: {name: op, namespace: default}
  spec: {type: warmup, sampleSetRef: {name: set}, warmupOptions: {paths: [train]}}
PaddleService:
  apiVersion: elasticserving.paddlepaddle.org/v1
  kind: PaddleService
  metadata: {name: lac, namespace: default}
  spec: {default: {containerImage: example/lac, tag: "1", port: 9292}}
"""

Object = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Answer:
    """What the API server said: the object as stored, or an error; warnings in both cases."""

    stored: Object = field(default_factory=dict)
    error: str = ""
    warnings: tuple[str, ...] = ()


@pytest.fixture(scope="session")
def kubectl(api_server: str) -> Kubectl:
    """Run kubectl against the test's API server."""

    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), "--kubeconfig", api_server, *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=240, check=False)

    return run


@pytest.fixture(scope="session")
def send(kubectl: Kubectl) -> Callable[..., Answer]:
    """Pass a manifest through admission; it is stored only with `keep`."""

    def sent(manifest: Object, *, keep: bool = False, verb: str = "create") -> Answer:
        dry = () if keep else ("--dry-run=server",)
        return answer(
            kubectl(verb, "-f", "-", "-o", "json", "--validate=warn", *dry, stdin=json.dumps(manifest))
        )

    return sent


@pytest.fixture(scope="session")
def patch(kubectl: Kubectl) -> Callable[..., Answer]:
    """Merge a change into a stored object."""

    def patched(stored: Object, change: Object, *, subresource: str = "") -> Answer:
        about = stored["metadata"]
        part = ("--subresource", subresource) if subresource else ()
        head = ("patch", stored["kind"].lower(), about["name"], "-n", about["namespace"])
        return answer(kubectl(*head, "--type=merge", "-p", json.dumps(change), "-o", "json", *part))

    return patched


def answer(done: subprocess.CompletedProcess[str]) -> Answer:
    lines = done.stderr.splitlines()
    warnings = tuple(line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: "))
    if done.returncode:
        return Answer(error=done.stderr, warnings=warnings)
    return Answer(stored=json.loads(done.stdout), warnings=warnings)


@pytest.fixture(scope="session")
def make() -> Callable[..., Object]:
    """A good object of the kind with some fields replaced by dotted path; None removes the field."""
    good: dict[str, Object] = yaml.safe_load(GOOD)

    def made(kind: str, changes: Mapping[str, Any] | None = None) -> Object:
        manifest = copy.deepcopy(good[kind])
        for path, value in (changes or {}).items():
            put(manifest, path.split("."), copy.deepcopy(value))
        return manifest

    return made


def put(node: Object, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        node = node.setdefault(step, {})
    if value is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value


@pytest.fixture(scope="session")
def policies(send: Callable[..., Answer], make: Callable[..., Object]) -> None:
    """Admission policies take effect a moment after they are installed; each is probed."""
    warned = (
        make("PaddleJob", {"spec.cleanPodPolicy": "Nerver"}),
        make("SampleSet", {"spec.source": None}),
        make("SampleJob", {"spec.syncOptions": {}}),
    )
    refused = make("PaddleJob", {"spec.sampleSetRef": {"name": "s", "namespace": "x", "mountPath": "/d"}})

    def active() -> bool:
        return all(send(manifest).warnings for manifest in warned) and bool(send(refused).error)

    asyncio.run(eventually(active, every=0.3, what="admission policies"))
