"""What goes wrong around a service: the API server, the bus, other writers, and bad objects."""

from __future__ import annotations

from typing import Any

from tests.unit.serving_controller.conftest import LAC, ServingHarness, to_second_version

from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, DEPLOYMENTS, HTTP_ROUTES, PADDLE_SERVICES
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.paddleservices import make_endpoint, make_service


async def test_a_refused_deployment_blocks_with_the_servers_words(plain: ServingHarness) -> None:
    with plain.failing(Permanent("Forbidden", "exceeded quota"), "create", DEPLOYMENTS):
        await plain.apply()
        condition = await plain.condition(LAC, "Blocked")
        assert (condition["status"], condition["reason"]) == ("True", "FailedCreate")
        assert "exceeded quota" in condition["message"]
    await plain.advance(2)
    assert await plain.reason("Blocked") == ("False", "Recovered")


async def test_a_route_that_cannot_be_written_leaves_the_requests_where_they_are(
    plain: ServingHarness,
) -> None:
    first, second = await to_second_version(plain)
    await plain.serving.make_ready(second)
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.drain_queue()
        await plain.advance(600)
        assert await plain.traffic() == {first: 100}
        assert first in await plain.serving.running()
    await plain.advance(61)
    await plain.route()
    assert await plain.traffic() == {second: 100}


async def test_a_promotion_that_the_route_does_not_say_yet_is_not_recorded_of_its_revision(
    plain: ServingHarness,
) -> None:
    first, second = await to_second_version(plain)
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.route()
        assert await plain.stable() == first
        old, new = await plain.revision(first), await plain.revision(second)
        assert (old["role"], new["role"]) == ("Stable", "Candidate")
        assert not new["wasStable"]
    await plain.advance(61)
    assert (await plain.revision(second))["role"] == "Stable"
    assert (await plain.revision(second))["wasStable"]


async def test_facts_wait_for_the_bus_and_keep_their_content(plain: ServingHarness) -> None:
    with plain.bus_down():
        await plain.served()
        for percent in (10, 20, 30):
            await plain.change(canary=make_endpoint("2"), canaryTrafficPercent=percent)
            await plain.ready(await plain.newest())
        assert not plain.facts()
    await plain.advance(30)
    steps: list[Any] = [event.data for event in plain.published if "Canary" in event.type]
    assert [fact.percent for fact in steps] == [10, 20, 30]
    # The object that each fact is about is that of its moment, too.
    assert [fact.service.generation for fact in steps] == [2, 3, 4]
    assert len({fact.service.resource_version for fact in steps}) == 3


async def test_a_fact_that_an_older_release_recorded_is_published_with_its_parts(
    plain: ServingHarness,
) -> None:
    await plain.served()
    fact = {"fact": "CanaryStepped", "attempt": 4, "at": "2026-01-01T00:00:00.000Z", "announced": False}
    await plain.set_status(LAC, {"announcements": [fact | {"revision": "lac-1", "percent": 25, "step": 2}]})
    await plain.drain_queue()
    assert (plain.last.revision, plain.last.percent, plain.last.step) == ("lac-1", 25, 2)
    await plain.advance(CONFIRM_GRACE_SECONDS)
    [kept] = (await plain.status(LAC))["announcements"]
    assert kept["announced"]
    assert "revision" not in kept


async def test_a_deleted_service_waits_for_the_bus_but_not_for_ever(plain: ServingHarness) -> None:
    await plain.served()
    with plain.bus_down():
        await plain.delete(LAC)
        await plain.drain_queue()
        assert await plain.exists(LAC, PADDLE_SERVICES)
        await plain.advance(601)
    assert not await plain.exists(LAC, PADDLE_SERVICES)


async def test_an_invalid_spec_changes_nothing_and_names_the_field(plain: ServingHarness) -> None:
    stable = await plain.served()
    await plain.change(canaryTrafficPercent=120)
    condition = await plain.condition(LAC, "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
    assert "canaryTrafficPercent" in condition["message"]
    assert await plain.traffic() == {stable: 100}
    await plain.change(canaryTrafficPercent=None)
    assert await plain.reason("Accepted") == ("True", "Accepted")


async def test_a_service_of_the_original_with_a_long_name_is_left_alone_and_told_why(
    plain: ServingHarness,
) -> None:
    key = await plain.create(make_service(name="n" * 46))
    await plain.drain_queue()
    condition = await plain.condition(key, "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
    assert "metadata.name must have at most 45" in condition["message"]
    assert not await plain.objects(DEPLOYMENTS)
    assert not await plain.objects(CONTROLLER_REVISIONS)
    await plain.delete(key)
    assert not await plain.exists(key, PADDLE_SERVICES)


async def test_an_endpoint_without_image_or_model_is_refused_with_the_remedy(plain: ServingHarness) -> None:
    service = make_service()
    service["spec"] = {"default": {"port": 80}}
    await plain.create(service)
    await plain.drain_queue()
    assert "set model to serve a saved model" in (await plain.condition(LAC, "Accepted"))["message"]


async def test_trouble_is_told_once_and_a_rollback_is_a_warning(plain: ServingHarness) -> None:
    stable = await plain.served()
    await plain.serving.make_unready(stable, "ImagePullBackOff")
    for _ in range(3):
        plain.replica.resync()
        await plain.drain_queue()
        await plain.advance(1)
    told = [event for event in await plain.kubernetes_events() if event.type == "Warning"]
    assert [event.reason for event in told] == ["ImagePullBackOff"]


async def test_a_nonsense_annotation_of_somebody_else_is_ignored(plain: ServingHarness) -> None:
    await plain.served()
    await plain.patch(LAC, {"metadata": {"annotations": {"models.paddlepaddle.org/chosen": "["}}})
    await plain.drain_queue()
    assert await plain.reason("Ready") == ("True", "Serving")
