"""The Cluster, Watches and Store ports: one suite on the memory adapter and on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_uid, key_of, owner_reference, uid_of, version_of
from paddlewheel.kube.ports import CONFIG_MAPS, NODES, PODS, Change, Object, Resource
from paddlewheel.testkit.kubernetes import CRDS, set_pod_status
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.wait import eventually

AnyCluster = MemoryCluster | ApiCluster


@dataclass(frozen=True)
class World:
    """A cluster and a namespace of the test's own in it."""

    cluster: AnyCluster
    namespace: str

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    def config(self, name: str, data: dict[str, str] | None = None, **meta: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace, **meta}
        return {"metadata": metadata, "data": {"a": "1"} if data is None else data}

    def widget(self, name: str) -> tuple[Resource, Object]:
        """An object of a kind of the test's own, and where it is stored."""
        group = f"{self.namespace}.example.com"
        resource = Resource(group, "v1", "widgets", "Widget")
        return resource, {"metadata": {"name": name, "namespace": self.namespace}}

    async def install(self, resource: Resource) -> None:
        if isinstance(self.cluster, MemoryCluster):
            self.cluster.install(resource)
            return
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": resource.plural, "kind": resource.kind, "singular": resource.kind.lower()}
        spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
        name = f"{resource.plural}.{resource.group}"
        await self.cluster.create(CRDS, {"metadata": {"name": name}, "spec": spec})

    async def uninstall(self, resource: Resource) -> None:
        if isinstance(self.cluster, MemoryCluster):
            self.cluster.uninstall(resource)
        else:
            key = Key("", f"{resource.plural}.{resource.group}")
            await self.cluster.delete(CRDS, key)
            # The server deletes its objects first; until then it takes no other of this name.
            await eventually(lambda: is_absent(self.cluster, CRDS, key), what=f"{key} is gone")

    def pod(self, name: str, **meta: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace, **meta}
        return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "none"}]}}


@pytest.fixture(params=["memory", "api"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return World(MemoryCluster(), "team")
    return World(request.getfixturevalue("cluster"), request.getfixturevalue("namespace"))


async def test_create_gives_what_get_gives(world: World) -> None:
    made = await world.cluster.create(CONFIG_MAPS, world.config("a"))
    assert made == await world.cluster.get(CONFIG_MAPS, world.key("a"))
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"a": "1"})
    assert uid_of(made)
    assert version_of(made)
    assert made["metadata"]["creationTimestamp"].endswith("Z")


async def test_create_twice_is_already_exists(world: World) -> None:
    await world.cluster.create(CONFIG_MAPS, world.config("a"))
    with pytest.raises(AlreadyExists, match='"a" already exists'):
        await world.cluster.create(CONFIG_MAPS, world.config("a"))


async def test_what_is_absent_is_not_found(world: World) -> None:
    with pytest.raises(NotFound, match='"a" not found'):
        await world.cluster.get(CONFIG_MAPS, world.key("a"))
    with pytest.raises(NotFound):
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"data": {"b": "2"}})


async def test_a_bad_object_is_permanent_with_the_servers_message(world: World) -> None:
    with pytest.raises(Permanent, match=r"metadata\.name: Invalid value") as caught:
        await world.cluster.create(CONFIG_MAPS, world.config("Not_A_Name"))
    assert caught.value.reason == "Invalid"


async def test_list_by_namespace_and_fields(world: World) -> None:
    for name in ("b", "a"):
        await world.cluster.create(CONFIG_MAPS, world.config(name))
    listed = await world.cluster.list(
        CONFIG_MAPS, world.namespace, field_selector="metadata.name!=kube-root-ca.crt"
    )
    assert [key_of(obj).name for obj in listed] == ["a", "b"]
    assert {(obj["apiVersion"], obj["kind"]) for obj in listed} == {("v1", "ConfigMap")}
    one = await world.cluster.list(
        CONFIG_MAPS, field_selector=f"metadata.name=a,metadata.namespace={world.namespace}"
    )
    assert [key_of(obj) for obj in one] == [world.key("a")]


SELECTORS = [
    ("app=web", "ab"),
    ("app==web,tier=front", "a"),
    ("app!=web", "cd"),
    ("app in (web, db)", "abc"),
    ("app notin (web,db)", "d"),
    ("tier", "ac"),
    ("!app", "d"),
    ("app,!tier", "b"),
    ("paddlepaddle.org/part in (0,1),app", "bc"),
]


@pytest.mark.parametrize(("selector", "expected"), SELECTORS)
async def test_list_by_labels(world: World, selector: str, expected: str) -> None:
    labels = {
        "a": {"app": "web", "tier": "front", "own": "y"},
        "b": {"app": "web", "own": "y", "paddlepaddle.org/part": "0"},
        "c": {"app": "db", "tier": "back", "own": "y", "paddlepaddle.org/part": "1"},
        "d": {"own": "y"},
    }
    for name, marks in labels.items():
        await world.cluster.create(CONFIG_MAPS, world.config(name, labels=marks))
    listed = await world.cluster.list(CONFIG_MAPS, world.namespace, label_selector=f"own=y,{selector}")
    assert "".join(key_of(obj).name for obj in listed) == expected


async def test_a_merge_patch_merges_and_null_deletes(world: World) -> None:
    await world.cluster.create(CONFIG_MAPS, world.config("a", {"a": "1", "b": "2"}, labels={"x": "1"}))
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"labels": {"x": None, "y": "2"}}}
    await world.cluster.patch(CONFIG_MAPS, world.key("a"), patch)
    seen = await world.cluster.get(CONFIG_MAPS, world.key("a"))
    assert seen["data"] == {"b": "2", "c": "3"}
    assert seen["metadata"]["labels"] == {"y": "2"}


async def test_a_patch_that_changes_nothing_keeps_the_version(world: World) -> None:
    made = await world.cluster.create(CONFIG_MAPS, world.config("a"))
    patched = await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"data": {"a": "1"}})
    assert version_of(patched) == version_of(made)


async def test_a_patch_with_an_old_version_is_a_conflict(world: World) -> None:
    old = await world.cluster.create(CONFIG_MAPS, world.config("a"))
    new = await world.cluster.patch(CONFIG_MAPS, world.key("a"), versioned(old, data={"a": "2"}))
    assert version_of(new) != version_of(old)
    with pytest.raises(Conflict, match="has been modified"):
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), versioned(old, data={"a": "3"}))
    await world.cluster.patch(CONFIG_MAPS, world.key("a"), versioned(new, data={"a": "4"}))


def versioned(obj: Object, **fields: Any) -> Object:
    return {"metadata": {"resourceVersion": version_of(obj)}, **fields}


async def test_status_changes_through_its_subresource_only(world: World) -> None:
    made = await world.cluster.create(PODS, {**world.pod("p"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    await world.cluster.patch(PODS, world.key("p"), {"status": {"phase": "Running"}})
    assert (await world.cluster.get(PODS, world.key("p")))["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running", "podIP": "10.0.0.9"}, "spec": {"activeDeadlineSeconds": 5}}
    patched = await world.cluster.patch(PODS, world.key("p"), patch, subresource="status")
    assert (patched["status"]["phase"], patched["status"]["podIP"]) == ("Running", "10.0.0.9")
    assert "activeDeadlineSeconds" not in patched["spec"]
    stale = versioned(made, status={"phase": "Failed"})
    with pytest.raises(Conflict):
        await world.cluster.patch(PODS, world.key("p"), stale, subresource="status")


async def test_pods_play_by_hand(world: World) -> None:
    await world.cluster.create(PODS, world.pod("p"))
    running = await set_pod_status(world.cluster, world.key("p"), "Running", ip="10.0.0.7")
    assert running["status"]["containerStatuses"][0]["ready"] is True
    failed = await set_pod_status(world.cluster, world.key("p"), "Failed", exit_code=137, message="oom")
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"], failed["status"]["podIP"]) == (137, "oom", "10.0.0.7")


async def test_delete_is_idempotent_and_spares_another_uid(world: World) -> None:
    made = await world.cluster.create(CONFIG_MAPS, world.config("a"))
    await world.cluster.delete(CONFIG_MAPS, world.key("a"), uid="12345678-0000-0000-0000-000000000000")
    assert await world.cluster.get(CONFIG_MAPS, world.key("a")) == made
    await world.cluster.delete(CONFIG_MAPS, world.key("a"), uid=uid_of(made), grace_seconds=0)
    await world.cluster.delete(CONFIG_MAPS, world.key("a"), uid=uid_of(made))
    await world.cluster.delete(CONFIG_MAPS, world.key("a"))
    with pytest.raises(NotFound):
        await world.cluster.get(CONFIG_MAPS, world.key("a"))


async def test_a_finalizer_holds_the_object_until_it_is_taken_off(world: World) -> None:
    finalizer = "paddlepaddle.org/test"
    await world.cluster.create(CONFIG_MAPS, world.config("a", finalizers=[finalizer]))
    await world.cluster.delete(CONFIG_MAPS, world.key("a"))
    held = await world.cluster.get(CONFIG_MAPS, world.key("a"))
    assert held["metadata"]["deletionTimestamp"].endswith("Z")
    await world.cluster.delete(CONFIG_MAPS, world.key("a"))
    await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await world.cluster.get(CONFIG_MAPS, world.key("a"))


async def test_children_go_with_their_owner(world: World) -> None:
    owner = await world.cluster.create(CONFIG_MAPS, world.config("owner"))
    other = await world.cluster.create(CONFIG_MAPS, world.config("other"))
    mine, theirs = owner_reference(owner, CONFIG_MAPS), owner_reference(other, CONFIG_MAPS)
    await world.cluster.create(CONFIG_MAPS, world.config("child", ownerReferences=[mine]))
    shared = [mine, {**theirs, "controller": False}]
    await world.cluster.create(CONFIG_MAPS, world.config("shared", ownerReferences=shared))
    await world.cluster.delete(CONFIG_MAPS, world.key("owner"))
    await eventually(lambda: is_gone(world, "child"))
    assert key_of(await world.cluster.get(CONFIG_MAPS, world.key("shared"))).name == "shared"


async def test_orphans_stay(world: World) -> None:
    owner = await world.cluster.create(CONFIG_MAPS, world.config("owner"))
    child = world.config("child", ownerReferences=[owner_reference(owner, CONFIG_MAPS)])
    await world.cluster.create(CONFIG_MAPS, child)
    await world.cluster.delete(CONFIG_MAPS, world.key("owner"), propagation="Orphan")
    await eventually(lambda: is_gone(world, "owner"))
    left = await world.cluster.get(CONFIG_MAPS, world.key("child"))
    assert not left["metadata"].get("ownerReferences")


async def is_gone(world: World, name: str) -> bool:
    return await is_absent(world.cluster, CONFIG_MAPS, world.key(name))


async def is_absent(cluster: AnyCluster, resource: Resource, key: Key) -> bool:
    try:
        await cluster.get(resource, key)
    except NotFound:
        return True
    return False


async def test_cluster_wide_kinds_have_no_namespace(world: World) -> None:
    name = f"node-{world.namespace}"
    made = await world.cluster.create(NODES, {"metadata": {"name": name}})
    try:
        assert key_of(made) == Key("", name)
        seen = await world.cluster.patch(NODES, Key("", name), {"metadata": {"labels": {"part": "0"}}})
        assert seen["metadata"]["labels"]["part"] == "0"
        assert name in [
            key_of(node).name for node in await world.cluster.list(NODES, label_selector="part=0")
        ]
    finally:
        await world.cluster.delete(NODES, Key("", name))


async def test_writes_are_counted(world: World) -> None:
    before = world.cluster.writes.copy()
    await world.cluster.create(PODS, world.pod("p"))
    await set_pod_status(world.cluster, world.key("p"), "Running")
    await world.cluster.patch(PODS, world.key("p"), {"metadata": {"labels": {"x": "y"}}})
    await world.cluster.delete(PODS, world.key("p"), grace_seconds=0)
    with pytest.raises(Permanent):
        await world.cluster.create(PODS, world.pod("Bad_"))
    assert dict(world.cluster.writes - before) == {
        ("create", "pods"): 1,
        ("patch-status", "pods"): 1,
        ("patch", "pods"): 1,
        ("delete", "pods"): 1,
    }


@asynccontextmanager
async def watching(
    world: World, label_selector: str = ""
) -> AsyncIterator[tuple[list[tuple[str, str]], asyncio.Event]]:
    """(type, name) of the changes seen so far, and whether the first list is whole."""
    seen: list[tuple[str, str]] = []
    synced = asyncio.Event()

    async def follow() -> None:
        changes = world.cluster.watch(
            CONFIG_MAPS, world.namespace, label_selector=label_selector, on_synced=synced.set
        )
        async for change in changes:
            if key_of(change.obj).name != "kube-root-ca.crt":
                seen.append((change.type, key_of(change.obj).name))

    task = asyncio.create_task(follow())
    try:
        yield seen, synced
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_reports_what_is_there_and_then_every_change(world: World) -> None:
    await world.cluster.create(CONFIG_MAPS, world.config("old"))
    async with watching(world) as (seen, synced):
        await asyncio.wait_for(synced.wait(), 90)
        await eventually(lambda: seen == [("ADDED", "old")])
        await world.cluster.create(CONFIG_MAPS, world.config("new"))
        await world.cluster.patch(CONFIG_MAPS, world.key("new"), {"data": {"a": "2"}})
        await world.cluster.patch(CONFIG_MAPS, world.key("new"), {"data": {"a": "2"}})
        await world.cluster.delete(CONFIG_MAPS, world.key("old"))
        await world.cluster.delete(CONFIG_MAPS, world.key("new"))
        expected = [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "old"), ("DELETED", "new")]
        await eventually(lambda: seen[1:] == expected, what="all changes")


async def test_a_watch_with_a_selector_sees_objects_come_and_go(world: World) -> None:
    async with watching(world, label_selector="app=web") as (seen, synced):
        await asyncio.wait_for(synced.wait(), 90)
        await world.cluster.create(CONFIG_MAPS, world.config("a"))
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"metadata": {"labels": {"app": "web"}}})
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"data": {"a": "2"}})
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"metadata": {"labels": {"app": None}}})
        expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        await eventually(lambda: seen == expected, what="all changes")


@asynccontextmanager
async def informed(
    informer: Informer,
    on_change: Callable[[Change], None] = lambda change: None,
    on_installed: Callable[[bool], None] = lambda installed: None,
) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run(on_change, on_installed))
    try:
        await asyncio.wait_for(informer.wait_synced(), 90)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nothing_that_is_read_records_who_set_which_field(world: World) -> None:
    made = await world.cluster.create(CONFIG_MAPS, world.config("a"))
    patched = await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"data": {"a": "2"}})
    got = await world.cluster.get(CONFIG_MAPS, world.key("a"))
    listed = await world.cluster.list(CONFIG_MAPS, world.namespace)
    changes = world.cluster.watch(CONFIG_MAPS, world.namespace)
    async with aclosing(changes):
        seen = [await anext(changes)]
        await world.cluster.patch(CONFIG_MAPS, world.key("a"), {"data": {"a": "3"}})
        while seen[-1].obj["data"] != {"a": "3"}:
            seen.append(await anext(changes))
    for obj in (made, patched, got, *listed, *(change.obj for change in seen)):
        assert obj["metadata"]["name"]
        assert "managedFields" not in obj["metadata"]


async def test_an_informer_holds_a_copy_with_indexes(world: World) -> None:
    owner = await world.cluster.create(CONFIG_MAPS, world.config("owner"))
    reference = owner_reference(owner, CONFIG_MAPS)
    for name in ("p-1", "p-0"):
        await world.cluster.create(PODS, world.pod(name, ownerReferences=[reference]))
    await world.cluster.create(PODS, world.pod("lone"))
    pods = Informer(
        world.cluster, PODS, world.namespace, clock=SystemClock(), indexes={"owner": controller_uid}
    )
    assert not pods.synced
    async with informed(pods):
        assert sorted(key_of(p).name for p in pods.by_index("owner", uid_of(owner))) == ["p-0", "p-1"]
        assert sorted(key_of(pod).name for pod in pods.list()) == ["lone", "p-0", "p-1"]
        assert pods.list("elsewhere") == []
        assert pods.by_index("owner", "nobody") == []
        await world.cluster.delete(PODS, world.key("p-0"))
        await eventually(lambda: pods.get(world.key("p-0")) is None)
        assert [key_of(pod).name for pod in pods.by_index("owner", uid_of(owner))] == ["p-1"]
        await world.cluster.patch(PODS, world.key("p-1"), {"metadata": {"ownerReferences": None}})
        await eventually(lambda: not pods.by_index("owner", uid_of(owner)))


async def test_an_informer_passes_a_change_on_after_it_has_applied_it(world: World) -> None:
    found: list[bool] = []
    configs = Informer(
        world.cluster, CONFIG_MAPS, world.namespace, clock=SystemClock(), field_selector="metadata.name=a"
    )

    def check(change: Change) -> None:
        found.append(configs.get(key_of(change.obj)) == change.obj)

    async with informed(configs, check):
        await world.cluster.create(CONFIG_MAPS, world.config("a"))
        await eventually(lambda: found == [True])
        await world.cluster.delete(CONFIG_MAPS, world.key("a"))
        await eventually(lambda: found == [True, False])


async def test_an_informer_shows_own_writes_at_once_and_knows_their_events(world: World) -> None:
    own: list[tuple[str, bool]] = []
    selector, labels = "app=own", {"labels": {"app": "own"}}
    configs = Informer(
        world.cluster, CONFIG_MAPS, world.namespace, clock=SystemClock(), label_selector=selector
    )
    key = world.key("a")
    async with informed(configs, lambda change: own.append((change.type, configs.is_own(change)))):
        await configs.write(key, world.cluster.create(CONFIG_MAPS, world.config("a", **labels)))
        assert configs.get(key) is not None
        await eventually(lambda: own == [("ADDED", True)])
        for turn in range(20):
            answer = await configs.write(
                key, world.cluster.patch(CONFIG_MAPS, key, {"data": {"x": str(turn)}})
            )
            assert configs.get(key) == answer
        await eventually(lambda: own[-1] == ("MODIFIED", True) and configs.get(key) == answer)
        assert all(is_own for _, is_own in own)
        foreign = await world.cluster.patch(CONFIG_MAPS, key, {"data": {"x": "foreign"}})
        await eventually(lambda: configs.get(key) == foreign)
        assert own[-1] == ("MODIFIED", False)
        await world.cluster.delete(CONFIG_MAPS, key, uid=uid_of(foreign))
        configs.deleting(key, uid_of(foreign), vanishes=True)
        assert configs.get(key) is None
        await eventually(lambda: own[-1] == ("DELETED", False))
        assert configs.list() == []


async def test_an_optional_kind_may_be_missing_and_come_and_go(world: World) -> None:
    resource, widget = world.widget("a")
    await world.uninstall(resource)
    widgets = Informer(world.cluster, resource, world.namespace, clock=SystemClock(), optional=True)
    reported: list[str] = []
    async with informed(
        widgets,
        lambda change: reported.append(change.type),
        lambda installed: reported.append(str(installed)),
    ):
        assert (widgets.synced, widgets.installed, widgets.list()) == (True, False, [])
        with pytest.raises(NotFound):
            await world.cluster.list(resource, world.namespace)

        await world.install(resource)
        await eventually(lambda: widgets.installed)
        widgets.wrote(await world.cluster.create(resource, widget))
        await eventually(lambda: reported == ["True", "ADDED"])
        assert widgets.get(world.key("a")) is not None

        await world.uninstall(resource)
        await eventually(lambda: not widgets.installed)
        assert (widgets.synced, widgets.list()) == (True, [])
        # A real server may end the watch before it reports what goes with the CRD.
        await eventually(lambda: reported == ["True", "ADDED", "DELETED", "False"])

        await world.install(resource)
        await eventually(lambda: widgets.installed)
        await world.cluster.create(resource, widget)
        await eventually(lambda: reported[4:] == ["True", "ADDED"])
    await world.uninstall(resource)


async def test_a_required_kind_is_waited_for(world: World) -> None:
    resource, widget = world.widget("a")
    await world.uninstall(resource)
    widgets = Informer(world.cluster, resource, world.namespace, clock=SystemClock())
    task = asyncio.create_task(widgets.run())
    with pytest.raises(NotFound):
        await world.cluster.get(resource, world.key("a"))
    assert not widgets.synced
    await world.install(resource)
    await eventually(lambda: widgets.synced)
    await world.cluster.create(resource, widget)
    await eventually(lambda: widgets.get(world.key("a")))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await world.uninstall(resource)


async def test_log_of_a_pod_that_is_on_no_node_is_empty(world: World) -> None:
    await world.cluster.create(PODS, world.pod("a"))
    assert await world.cluster.read_log(world.key("a"), container="main", lines=10, limit_bytes=99) == ""


async def test_log_of_an_absent_pod_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await world.cluster.read_log(world.key("absent"), container="main", lines=10, limit_bytes=99)
