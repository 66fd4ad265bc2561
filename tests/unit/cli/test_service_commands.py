"""`paddlewheel service` beside a serving-controller in memory: what is asked for, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.cli.conftest import text_of
from tests.unit.serving_controller.conftest import BAD, GOOD, LAC, ServingHarness, running_on

from paddlewheel.cli import service
from paddlewheel.cli.service import Decide, apply_change, back_to, decided_by, get, wait_until_reached
from paddlewheel.cli.service_changes import Json, Seen, abortion, promotion, read, release
from paddlewheel.cli.service_tables import differences, services
from paddlewheel.cli.service_tables import service as tables
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Permanent
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.paddleservices import make_endpoint, make_service
from paddlewheel.testkit.wait import eventually


@pytest.fixture
async def harness() -> AsyncIterator[ServingHarness]:
    async with running_on("Kubernetes") as running:
        yield running


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is looked at often."""
    monkeypatch.setattr(service, "STATUS_INTERVAL_SECONDS", 0.01)


async def ask(harness: ServingHarness, decide: Decide) -> str:
    """The words of the command; the controller and the cluster have dealt with them."""
    change, _ = await apply_change(harness.cluster, LAC, decide)
    await harness.drain_queue()
    await harness.play()
    return change.summary


async def try_(harness: ServingHarness, tag: str) -> str:
    """A new default in its first step, or at once without rules."""
    newest = await harness.revised(default=make_endpoint(tag))
    await harness.ready(newest)
    return newest


async def reject(harness: ServingHarness, stable: str, candidate: str) -> None:
    await harness.look({stable: GOOD, candidate: BAD}, seconds=6)


async def default_of(harness: ServingHarness) -> Object:
    found: Object = (await harness.cluster.get(PADDLE_SERVICES, LAC))["spec"]["default"]
    return found


async def test_a_rollback_passes_over_a_revision_that_was_rejected(harness: ServingHarness) -> None:
    first = await harness.served(rollout={})
    await reject(harness, first, await try_(harness, "2"))
    third = await try_(harness, "3")
    await ask(harness, decided_by(promotion))
    assert await harness.stable() == third
    await ask(harness, back_to("", now=True))
    assert await harness.stable() == first
    assert await default_of(harness) == make_endpoint("1")


async def test_a_first_revision_that_never_answered_is_none_to_go_back_to(harness: ServingHarness) -> None:
    await harness.apply()
    await try_(harness, "2")
    with pytest.raises(Permanent, match="no earlier revision that was stable"):
        await ask(harness, back_to("", now=False))


@pytest.mark.parametrize("is_over", [False, True], ids=["during a rollout", "after it was rolled back"])
async def test_a_rollback_of_a_change_goes_back_to_the_stable_revision(
    harness: ServingHarness, is_over: bool
) -> None:
    await harness.served()
    second = await try_(harness, "2")
    await harness.change(rollout={})
    third = await try_(harness, "3")
    if is_over:
        await reject(harness, second, third)
    said = await ask(harness, back_to("", now=False))
    assert f"{second} requested, the stable revision" in said
    assert await default_of(harness) == make_endpoint("2")
    assert await harness.traffic() == {second: 100}
    assert "rollout" not in await harness.status(LAC)


async def test_under_rules_a_rollback_is_a_rollout_unless_it_is_to_be_now(harness: ServingHarness) -> None:
    first = await harness.served()
    second = await try_(harness, "2")
    await harness.change(rollout={})
    assert "through the steps" in await ask(harness, back_to("", now=False))
    assert await harness.traffic() == {second: 95, first: 5}
    await ask(harness, decided_by(abortion))
    assert await harness.traffic() == {second: 100}
    await ask(harness, back_to("1", now=True))
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("HeldByHand") == ("True", "ServedByHand")


async def test_a_release_leaves_what_is_served_and_lets_later_changes_through(
    harness: ServingHarness,
) -> None:
    first = await harness.served()
    await try_(harness, "2")
    await harness.change(rollout={})
    await ask(harness, back_to("", now=True))
    await ask(harness, decided_by(release))
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("HeldByHand") == ("False", "Recovered")
    third = await try_(harness, "3")
    assert await harness.traffic() == {first: 95, third: 5}


async def test_a_rejected_revision_is_served_if_it_is_held(harness: ServingHarness) -> None:
    first = await harness.served(rollout={})
    second = await try_(harness, "2")
    await reject(harness, first, second)
    with pytest.raises(Permanent, match="was rolled back"):
        await ask(harness, decided_by(promotion))
    await ask(harness, back_to(second, now=True))
    assert await harness.stable() == second


# Writing


def conflicts(harness: ServingHarness, times: int) -> None:
    """So often somebody else writes between reading and writing."""
    left = iter(range(times))

    def intercept(verb: str, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("patch", PADDLE_SERVICES) and next(left, None) is not None:
            raise Conflict("the object has been modified")

    harness.cluster.intercept = intercept


async def test_a_change_is_decided_anew_when_the_object_has_changed_meanwhile(
    harness: ServingHarness,
) -> None:
    await harness.served()
    await try_(harness, "2")
    conflicts(harness, 4)
    await ask(harness, back_to("", now=False))
    assert await default_of(harness) == make_endpoint("1")


async def test_a_change_that_never_gets_through_is_given_up_with_a_remedy(harness: ServingHarness) -> None:
    await harness.served()
    await try_(harness, "2")
    conflicts(harness, 5)
    with pytest.raises(Permanent, match="changed by other clients 5 times: run the command again"):
        await apply_change(harness.cluster, LAC, back_to("", now=False))


# Waiting


async def test_a_command_waits_until_the_gateway_has_followed(harness: ServingHarness) -> None:
    await harness.served()
    second = await try_(harness, "2")
    change, obj = await apply_change(harness.cluster, LAC, back_to("", now=False))
    told: list[tuple[str, float]] = []
    waiting = asyncio.create_task(
        wait_until_reached(harness.cluster, change, obj, 20, lambda text, part: told.append((text, part)))
    )
    await eventually(lambda: told)
    assert told[0][0].startswith(f"{change.goal} gets 0 % of the requests")
    assert told[0][1] == 0
    await harness.drain_queue()
    await harness.ready(change.goal)
    await harness.route()
    await waiting
    assert await harness.stable() == change.goal != second


async def test_what_takes_longer_is_told_with_what_keeps_it(harness: ServingHarness) -> None:
    first = await harness.served()
    await try_(harness, "2")
    change, obj = await apply_change(harness.cluster, LAC, back_to("", now=False))
    await harness.drain_queue()
    await harness.serving.make_unready(first)
    await harness.drain_queue()
    with pytest.raises(
        Permanent, match=rf"NotYet: after 0 s: {first} gets 0 % of the requests; .*the change continues"
    ):
        await wait_until_reached(harness.cluster, change, obj, 0, lambda *_: None)


# Reading


async def test_a_mistyped_name_is_answered_with_those_of_its_namespace() -> None:
    cluster = MemoryCluster()
    for name, namespace in (("lac", "default"), ("senta", "default"), ("secret", "other")):
        await cluster.create(PADDLE_SERVICES, make_service(name, namespace))
    with pytest.raises(Permanent, match=r"namespace default has: lac, senta$"):
        await get(cluster, Key("default", "lca"))


async def test_without_the_kind_the_chart_is_named() -> None:
    cluster = MemoryCluster()
    cluster.uninstall(PADDLE_SERVICES)
    with pytest.raises(Permanent, match=r"NotInstalled.*install the chart"):
        await get(cluster, LAC)


def shown(seen: Seen, contents: dict[str, Json]) -> str:
    return text_of(*tables(seen, contents))


async def test_revisions_of_one_image_are_told_apart(harness: ServingHarness) -> None:
    await harness.served()
    await harness.change(default=make_endpoint(arg="serve --fast [x]", port=9293))
    obj = await harness.cluster.get(PADDLE_SERVICES, LAC)
    text = shown(read(obj), await service._contents(harness.cluster, LAC))
    assert "arg serve --fast [x]" in text
    assert "port 9293" in text
    assert "port 9292" not in text


async def test_those_who_may_not_read_records_see_the_rest(harness: ServingHarness) -> None:
    await harness.served()

    def intercept(_: str, resource: Resource, __: Key) -> None:
        if resource == CONTROLLER_REVISIONS:
            raise Permanent("Forbidden", "controllerrevisions is forbidden")

    harness.cluster.intercept = intercept
    assert await service._contents(harness.cluster, LAC) == {}


@pytest.mark.parametrize(
    ("content", "before", "said"),
    [
        ({"arg": "x" * 70}, {}, [f"arg {'x' * 60}..."]),
        ({}, {"arg": "x"}, ["no arg"]),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {}}, ["other resources"]),
        ({"image": "b", "model": {"version": "2"}}, {"image": "a", "model": {"version": "1"}}, []),
        ({"model": {"name": "m", "path": "b"}}, {"model": {"name": "m", "path": "a"}}, ["model.path b"]),
    ],
)
def test_what_differs_is_said_beside_what_is_shown_anyway(
    content: Json, before: Json, said: list[str]
) -> None:
    assert differences(content, before) == said


async def test_a_step_without_a_verdict_says_so_instead_of_an_empty_table(harness: ServingHarness) -> None:
    await harness.served(rollout={})
    second = await try_(harness, "2")
    obj = await harness.cluster.get(PADDLE_SERVICES, LAC)
    assert f"{second}: Stepping, step 1, 5 %; no figures yet" in shown(read(obj), {})
    first = await harness.stable()
    await reject(harness, first, second)
    obj = await harness.cluster.get(PADDLE_SERVICES, LAC)
    assert "no figures" not in shown(read(obj), {})


def test_what_a_status_says_does_not_control_the_terminal() -> None:
    words = {"reason": "R\x1b[2J", "message": "M\x1b[2J[/x]"}
    obj = make_service(LAC.name, LAC.namespace)
    obj["status"] = {
        **words,
        "conditions": [{"type": "Ready", "status": "False", **words}],
        "revisions": [{"name": "lac-1", "number": 1, **words}],
    }
    text = text_of(*tables(read(obj), {}), services([read(obj)]))
    assert "\x1b" not in text
    assert (text.count(r"R\x1b[2J"), text.count(r"M\x1b[2J[/x]")) == (3, 2)
