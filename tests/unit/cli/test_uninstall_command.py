"""`paddlewheel uninstall` releases objects without harm to what others changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from typer.testing import Result

from paddlewheel.cli import uninstall
from paddlewheel.cli.target import Target, Where
from paddlewheel.cli.uninstall import DEPLOYMENTS, Found, delete_all, refuse_other_installations, release_all
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import finalizers_of
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster, Verb

Command = Callable[..., Result]
OURS, USERS = "finalizers.paddlepaddle.org", "example.com/keep"


async def with_jobs(*names: str) -> MemoryCluster:
    cluster = MemoryCluster()
    for name in names:
        metadata = {"namespace": "team", "name": name, "finalizers": [OURS]}
        await cluster.create(PADDLE_JOBS, {"metadata": metadata, "spec": {}})
    return cluster


async def finalizers(cluster: MemoryCluster, name: str) -> tuple[str, ...]:
    return finalizers_of(await cluster.get(PADDLE_JOBS, Key("team", name)))


async def test_a_finalizer_that_is_added_meanwhile_is_kept() -> None:
    cluster = await with_jobs("a")
    list_, added = cluster.list, []

    async def list_then_change(resource: Resource) -> object:
        listed = await list_(resource)
        added.append(True)
        await cluster.patch(resource, Key("team", "a"), {"metadata": {"finalizers": [OURS, USERS]}})
        return listed

    cluster.list = list_then_change  # type: ignore[assignment, method-assign]
    assert await release_all(cast(ApiCluster, cluster), PADDLE_JOBS) == []
    assert added
    assert await finalizers(cluster, "a") == (USERS,)


async def test_an_object_that_is_refused_is_reported_and_the_others_are_released() -> None:
    cluster = await with_jobs("a", "b")

    def refuse(verb: Verb, resource: Resource, key: Key) -> None:
        if verb == "patch" and key.name == "a":
            raise Permanent("Forbidden", "by a webhook")

    cluster.intercept = refuse
    refused = await release_all(cast(ApiCluster, cluster), PADDLE_JOBS)
    assert refused == ["PaddleJob team/a: Forbidden: by a webhook"]
    assert (await finalizers(cluster, "a"), await finalizers(cluster, "b")) == ((OURS,), ())


async def test_controllers_in_another_namespace_are_named_and_nothing_is_released() -> None:
    cluster = MemoryCluster()
    labels = {"app.kubernetes.io/part-of": "paddlewheel"}
    metadata = {"namespace": "other", "name": "job-controller", "labels": labels}
    await refuse_other_installations(cast(ApiCluster, cluster))
    await cluster.create(DEPLOYMENTS, {"metadata": metadata})
    with pytest.raises(Permanent, match=r"InstalledElsewhere: .*: other/job-controller\. Uninstall them"):
        await refuse_other_installations(cast(ApiCluster, cluster))


def test_a_second_run_deletes_the_objects_that_the_first_one_left(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run was interrupted after it had removed the services."""
    cluster = asyncio.run(with_jobs("a", "b"))
    without_services(monkeypatch, cluster, PaddleJob=2)
    done = paddlewheel("uninstall", "--objects", "--yes")
    assert (done.exit_code, done.stdout) == (0, "no services were installed\n")
    assert asyncio.run(cluster.list(PADDLE_JOBS)) == []


@pytest.mark.parametrize(("options", "failed"), [(("--objects",), True), ((), False)])
@pytest.mark.parametrize("output", ["text", "json"])
def test_objects_that_are_left_are_an_error_only_if_they_should_be_deleted(
    paddlewheel: Command,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    failed: bool,
    output: str,
) -> None:
    cluster = asyncio.run(with_jobs("a"))
    held = {"metadata": {"finalizers": [OURS, USERS]}}
    asyncio.run(cluster.patch(PADDLE_JOBS, Key("team", "a"), held))
    without_services(monkeypatch, cluster, PaddleJob=1)
    done = paddlewheel("uninstall", "--yes", *options, "-o", output)
    assert done.exit_code == failed
    assert "1 PaddleJob" in f"{done.stdout}{done.exception}" or '"PaddleJob": 1' in done.stdout
    assert asyncio.run(finalizers(cluster, "a")) == (USERS,)


def without_services(monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster, **objects: int) -> None:
    """A cluster from which the services were removed."""

    async def survey(_: object) -> Found:
        return Found("mine", release=False, objects=objects)

    class Without(Target):
        @asynccontextmanager
        async def connected(self, *, check: bool = True) -> AsyncIterator[Any]:
            yield cluster

    monkeypatch.setattr(uninstall, "_survey", survey)
    monkeypatch.setattr(Where, "target", Without("", None))


async def test_deletion_is_waited_for_as_long_as_objects_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes before the limit, all of them only after it."""
    monkeypatch.setattr(uninstall, "DELETION_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(uninstall, "_LIST_INTERVAL_SECONDS", 0.01)
    names = ["a", "b", "c", "d", "e"]
    cluster = await with_jobs(*names)

    async def release() -> None:
        for name in names:
            await asyncio.sleep(0.5)
            await cluster.patch(PADDLE_JOBS, Key("team", name), {"metadata": {"finalizers": None}})

    releasing = asyncio.create_task(release())
    await delete_all(cast(ApiCluster, cluster), PADDLE_JOBS, lambda _text, _part: None)
    await releasing
    assert await cluster.list(PADDLE_JOBS) == []
