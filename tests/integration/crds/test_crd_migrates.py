"""Objects stored by the original, before any rule existed, can still be updated, finished and deleted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.crds.api import Api, Object, each

from paddlewheel.contracts.crds import PADDLE_SERVICE, PUBLISHED_KINDS, Kind
from paddlewheel.contracts.crds.schema import crd
from paddlewheel.testkit.wait import eventually

MIGRATED = (*PUBLISHED_KINDS, PADDLE_SERVICE)
"""The kinds that the original has."""
OWN_GROUP = "migration.example.org"
"""It keeps these definitions apart from those of other tests."""
CONSTRAINTS = ("x-kubernetes-validations", "minimum", "maximum", "pattern", "enum", "minLength")
OLD: dict[str, dict[str, Any]] = {
    "PaddleJob": {"spec": {"intranet": "Service", "worker": {"replicas": 2}}},
    "SampleSet": {"spec": {"source": {"uri": "bucket.without.scheme"}}},
    "SampleJob": {"spec": {"type": "prefetch", "rmrOptions": {"paths": ["../x"]}}},
    "PaddleService": {
        "spec": {"default": {"containerImage": "lac", "tag": "1", "port": 9292}, "canaryTrafficPercent": 150}
    },
}
LONG_NAME = "old." + "n" * 80


def without_rules(node: Any) -> Any:
    """The schema as the original published it: types only."""
    if isinstance(node, dict):
        return {key: without_rules(value) for key, value in node.items() if key not in CONSTRAINTS}
    return [without_rules(item) for item in node] if isinstance(node, list) else node


def in_own_group(kind: Kind) -> Object:
    """The definition without the names that kubectl would resolve to both groups."""
    definition: Object = json.loads(json.dumps(crd(kind)).replace(kind.group, OWN_GROUP))
    definition["spec"]["names"].pop("categories")
    definition["spec"]["names"].pop("shortNames")
    return definition


def stored_by_original(kind: Kind) -> Object:
    head = {"apiVersion": f"{OWN_GROUP}/{kind.version}", "kind": kind.kind}
    about = {"name": LONG_NAME, "namespace": "default", "finalizers": ["example.org/hold"]}
    return {**head, "metadata": about, **OLD[kind.kind]}


@asynccontextmanager
async def migrated(api: Api, kind: Kind) -> AsyncIterator[Object]:
    """An object that was created under the bare types, once the rules are in force."""
    definition, manifest = in_own_group(kind), stored_by_original(kind)
    bare = await api.send(without_rules(definition), keep=True)
    assert bare.error == ""
    try:
        stored = await eventually(lambda: created(api, manifest), every=0.3, what="the kind is served")
        ruled = await api.patch(bare.stored, {"spec": definition["spec"]})
        assert ruled.error == ""
        await eventually(lambda: is_refused(api, manifest), every=0.3, what="rules in force")
        yield stored
    finally:
        await api.delete(bare.stored)


async def created(api: Api, manifest: Object) -> Object:
    """The stored object, {} while the API server does not serve the kind yet."""
    answer = await api.send(manifest, keep=True)
    assert not answer.error or answer.status["reason"] in ("NotFound", "NotServed"), answer.error
    return answer.stored


async def is_refused(api: Api, manifest: Object) -> bool:
    """Whether a new object like it is invalid."""
    metadata = {**manifest["metadata"], "name": f"{LONG_NAME}2"}
    return (await api.send({**manifest, "metadata": metadata})).status.get("reason") == "Invalid"


async def test_old_objects_take_a_status_and_lose_their_finalizers(api: Api) -> None:
    async def check(kind: Kind) -> None:
        async with migrated(api, kind) as stored:
            status = {"status": {"reason": "InvalidSpec"}}
            assert (await api.patch(stored, status, subresource="status")).error == ""
            assert (await api.delete(stored)).error == ""
            assert (await api.get(stored)).error == ""
            assert (await api.patch(stored, {"metadata": {"finalizers": None}})).error == ""
            assert (await api.get(stored)).status["reason"] == "NotFound"

    await each({kind.kind: kind for kind in MIGRATED}, check)
