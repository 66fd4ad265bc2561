"""Objects stored by the original, before any rule existed, can still be updated, finished and deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from paddlewheel.contracts.crds import PADDLE_SERVICE, PUBLISHED_KINDS, Kind
from paddlewheel.contracts.crds.schema import crd
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.xdist_group("crd-migrates")
"""They share one migration."""

MIGRATED = (*PUBLISHED_KINDS, PADDLE_SERVICE)
"""The kinds that the original has."""
OWN_GROUP = "migration.example.org"
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


def in_own_group(kind: Kind) -> dict[str, Any]:
    """The definition without the words that kubectl would resolve to both groups."""
    definition: dict[str, Any] = json.loads(json.dumps(crd(kind)).replace(kind.group, OWN_GROUP))
    definition["spec"]["names"].pop("categories")
    definition["spec"]["names"].pop("shortNames")
    return definition


def stored_by_original(kind: Kind) -> dict[str, Any]:
    head = {"apiVersion": f"{OWN_GROUP}/{kind.version}", "kind": kind.kind}
    about = {"name": LONG_NAME, "namespace": "default", "finalizers": ["example.org/hold"]}
    return {**head, "metadata": about, **OLD[kind.kind]}


@pytest.fixture(scope="module")
def migrated(kubectl: Callable[..., Any]) -> Iterator[None]:
    """Objects created under the bare types; then the rules arrive. An own group keeps other tests apart."""
    ours = [in_own_group(kind) for kind in MIGRATED]
    for definition in ours:
        kubectl("apply", "-f", "-", stdin=json.dumps(without_rules(definition)))
        kubectl("wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}")
    old = [json.dumps(stored_by_original(kind)) for kind in MIGRATED]

    def created(manifest: str) -> bool:
        """Once discovery knows the kind, which takes the API server a while for large definitions."""
        done = kubectl("create", "-f", "-", stdin=manifest)
        assert done.returncode == 0 or "no matches for kind" in done.stderr, done.stderr
        return bool(done.returncode == 0)

    for manifest in old:
        asyncio.run(eventually(partial(created, manifest), every=0.3, what="the kind is known"))

    for definition in ours:
        done = kubectl("apply", "-f", "-", stdin=json.dumps(definition))
        assert done.returncode == 0, done.stderr

    def refused(manifest: str) -> bool:
        anew = manifest.replace(LONG_NAME, LONG_NAME + "2")
        return "invalid" in kubectl("create", "--dry-run=server", "-f", "-", stdin=anew).stderr

    asyncio.run(eventually(lambda: all(map(refused, old)), every=0.3, what="rules in force"))
    yield
    for definition in ours:
        kubectl("delete", "crd", definition["metadata"]["name"], "--wait=false")


@pytest.mark.usefixtures("migrated")
@pytest.mark.parametrize("kind", MIGRATED, ids=lambda kind: kind.kind)
def test_old_object_takes_status_and_loses_its_finalizer(kind: Kind, kubectl: Callable[..., Any]) -> None:
    resource = f"{kind.plural}.{OWN_GROUP}"
    status = json.dumps({"status": {"reason": "InvalidSpec"}})
    free = json.dumps({"metadata": {"finalizers": None}})
    merge = ("patch", resource, LONG_NAME, "-n", "default", "--type=merge", "-p")
    wrote = kubectl(*merge, status, "--subresource=status")
    assert wrote.returncode == 0, wrote.stderr
    assert kubectl("delete", resource, LONG_NAME, "-n", "default", "--wait=false").returncode == 0
    freed = kubectl(*merge, free)
    assert freed.returncode == 0, freed.stderr
    assert "NotFound" in kubectl("get", resource, LONG_NAME, "-n", "default").stderr
