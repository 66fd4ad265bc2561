"""The API server's own answers to manifests, over one client."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp
import orjson
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api import path_of
from paddlewheel.kube.ports import (
    NAMESPACES,
    PADDLE_JOBS,
    PADDLE_SERVICES,
    PODS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    TRIGGERS,
    Resource,
)
from paddlewheel.testkit.kubernetes import CRDS

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
Trigger:
  apiVersion: events.paddlepaddle.org/v1alpha1
  kind: Trigger
  metadata: {name: t, namespace: default}
  spec:
    when: {fact: {type: paddlewheel.datasets.v1.SampleSetReady}}
    create: {sampleJob: {spec: {type: clear, sampleSetRef: {name: set}}}}
"""
OURS = (PADDLE_JOBS, SAMPLE_SETS, SAMPLE_JOBS, TRIGGERS, PADDLE_SERVICES)
RESOURCES = {resource.kind: resource for resource in (*OURS, PODS, NAMESPACES, CRDS)}
CALL_TIMEOUT_SECONDS = 90
CALLS_AT_ONCE = 8
_MERGE = "application/merge-patch+json"
_GOOD: dict[str, Any] = yaml.safe_load(GOOD)

Object = dict[str, Any]
Row = TypeVar("Row")


@dataclass(frozen=True)
class Answer:
    """The object as the server would store it, or the error; with warnings in both cases."""

    stored: Object = field(default_factory=dict)
    error: str = ""
    warnings: tuple[str, ...] = ()
    status: Object = field(default_factory=dict)
    """The error as the API server wrote it."""


@dataclass(frozen=True)
class Api:
    """A client with all rights that returns refusals and warnings instead of raising or hiding them."""

    client: ApiClient

    async def send(self, manifest: Object, *, keep: bool = False, validation: str = "Warn") -> Answer:
        """Pass a manifest through admission; it is stored only with `keep`.

        Args:
            validation: `Strict` refuses unknown fields, as kubectl asks for by default.
        """
        resource = _resource_of(manifest)
        query = {"fieldValidation": validation, **({} if keep else {"dryRun": "All"})}
        path = path_of(resource, manifest["metadata"].get("namespace", ""))
        return await self.ask("POST", path, manifest, query=query)

    async def patch(self, stored: Object, change: Object, *, subresource: str = "") -> Answer:
        """Merge a change into a stored object."""
        return await self.ask("PATCH", _path_of(stored, subresource), change, content_type=_MERGE)

    async def get(self, stored: Object, *, subresource: str = "") -> Answer:
        """Read a stored object."""
        return await self.ask("GET", _path_of(stored, subresource))

    async def delete(self, stored: Object) -> Answer:
        """Delete a stored object without waiting for its finalizers."""
        return await self.ask("DELETE", _path_of(stored))

    @asynccontextmanager
    async def kept(self, manifest: Object) -> AsyncIterator[Object]:
        """Store a manifest under a name of its own while the block runs."""
        name = f"{manifest['metadata']['name']}-{uuid4().hex[:6]}"
        answer = await self.send({**manifest, "metadata": {**manifest["metadata"], "name": name}}, keep=True)
        if answer.error:
            raise AssertionError(f"{name} was not stored: {answer.error}")
        try:
            yield answer.stored
        finally:
            await self.delete(answer.stored)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One request."""
        headers = {"Accept": accept, "Content-Type": content_type}
        await self.client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self.client.configuration.host}{path}{'?' + urlencode(query) if query else ''}"
        timeout = aiohttp.ClientTimeout(CALL_TIMEOUT_SECONDS)
        called = await self.client.call_api(method, url, headers, body, _request_timeout=timeout)
        async with called.response as response:
            answered = await response.read()
            warnings = tuple(map(_text_of, response.headers.getall("Warning", [])))
        if response.status < 300:
            return Answer(stored=orjson.loads(answered), warnings=warnings)
        # A group that is not served yet is answered with plain text.
        is_json = response.content_type == "application/json"
        status = orjson.loads(answered) if is_json else {"reason": "NotServed", "message": answered.decode()}
        return Answer(error=status["message"], warnings=warnings, status=status)


@asynccontextmanager
async def opened(kubeconfig: str) -> AsyncIterator[Api]:
    """A client while the block runs."""
    settings = Configuration()
    await load_kube_config(config_file=kubeconfig, client_configuration=settings, persist_config=False)  # type: ignore[no-untyped-call]
    settings.client_session_kwargs = {"trust_env": False}
    async with ApiClient(configuration=settings) as client:
        yield Api(client)


def make(kind: str, changes: Mapping[str, Any] | None = None) -> Object:
    """A good object of the kind with some fields replaced by dotted path; None removes the field."""
    manifest: Object = copy.deepcopy(_GOOD[kind])
    for path, value in (changes or {}).items():
        _put(manifest, path.split("."), copy.deepcopy(value))
    return manifest


async def each(rows: Mapping[str, Row], check: Callable[[Row], Awaitable[None]]) -> None:
    """Check all rows, several at once.

    Raises:
        AssertionError: there are no rows, or some failed; names each of these and says why.
    """
    turns = asyncio.Semaphore(CALLS_AT_ONCE)

    async def judge(name: str, row: Row) -> str:
        async with turns:
            try:
                await check(row)
            except Exception as error:
                return f"{name}: {type(error).__name__}: {error}"
            return ""

    failed = [why for why in await asyncio.gather(*(judge(*row) for row in rows.items())) if why]
    if failed or not rows:
        raise AssertionError("\n\n".join([f"{len(failed)} of {len(rows)} rows failed", *failed]))


def _put(node: Object, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        node = node.setdefault(step, {})
    if value is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value


def _resource_of(manifest: Object) -> Resource:
    known = RESOURCES[manifest["kind"]]
    group, _, version = manifest["apiVersion"].rpartition("/")
    # The same kinds exist in the group of test_crd_migrates.
    return Resource(group, version, known.plural, known.kind, known.namespaced)


def _path_of(stored: Object, subresource: str = "") -> str:
    key = Key(stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
    return path_of(_resource_of(stored), key.namespace, key.name, subresource)


def _text_of(header: str) -> str:
    """The text of `299 - "Validation failed for ... with binding '...': text"`."""
    text = header.split('"', 1)[1].rsplit('"', 1)[0]
    text = text.replace('\\"', '"').replace("\\\\", "\\")
    return re.sub(r"^Validation failed for .*? with binding '[^']*': ", "", text)
