"""What every engine keeps to: the whole service over Kubernetes own kinds, and over Knative."""

from __future__ import annotations

import pytest
from tests.unit.serving_controller.conftest import DRAIN, LAC, ServingHarness, to_second_version, with_canary

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_SERVICES, PODS, SERVICES
from paddlewheel.testkit.paddleservices import REVISION, PlainServing, make_endpoint, waiting_pod
from serving_controller.domain.pods import trouble_of


async def test_a_service_becomes_ready_and_says_where_it_is(harness: ServingHarness) -> None:
    stable = await harness.served()
    status = await harness.status(LAC)
    assert await harness.reason("Ready") == ("True", "Serving")
    assert status["mode"] == harness.serving.mode
    assert status["url"] == "http://lac.default.example.com"
    assert status["address"]["url"] == "http://lac-default-private.default.svc.cluster.local"
    assert status["traffic"] == f"{stable}=100"
    assert harness.facts() == ["RevisionReady", "ServiceReady"]


async def test_nothing_is_written_at_rest(harness: ServingHarness) -> None:
    await harness.served()
    with harness.counted_writes() as writes:
        harness.replica.resync()
        await harness.drain_queue()
        await harness.settle(LAC)
    assert not writes


async def test_requests_move_to_a_new_revision_only_when_it_is_ready(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness)
    assert await harness.traffic() == {first: 100}
    assert await harness.stable() == first
    await harness.ready(second)
    assert await harness.traffic() == {second: 100}
    assert await harness.stable() == second
    assert "CanaryPromoted" in harness.facts()


async def test_requests_move_only_to_pods_that_the_service_lists(plain: ServingHarness) -> None:
    serving = plain.serving
    assert isinstance(serving, PlainServing)
    first, second = await to_second_version(plain)
    await serving.make_ready(second)
    await serving.reach(second, 0)
    await plain.drain_queue()
    assert await serving.traffic() == {first: 100}
    await serving.reach(second, 1)
    await plain.drain_queue()
    await plain.route()
    assert await serving.traffic() == {second: 100}


async def test_a_gateway_knows_a_revision_before_it_gets_requests(plain: ServingHarness) -> None:
    """Its watches of routes and of endpoints are in no common order."""
    first, second = await to_second_version(plain)
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    await plain.advance(DRAIN)
    assert await plain.traffic() == {first: 100, second: 0}
    assert await plain.stable() == first
    waiting = await plain.revision(second)
    assert (waiting["reason"], waiting["message"]) == (
        "RoutePending",
        "the gateway has not taken the revision into its route yet",
    )
    await plain.route()
    assert await plain.traffic() == {second: 100}


async def test_a_change_that_is_taken_back_leaves_the_route(plain: ServingHarness) -> None:
    first, second = await to_second_version(plain)
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    assert await plain.traffic() == {first: 100, second: 0}
    await plain.change(default=make_endpoint("1"))
    assert await plain.traffic() == {first: 100}


async def test_the_old_revision_stays_until_it_has_been_idle_for_a_while(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness)
    await harness.introduced(second)
    # The gateway has not taken the new route yet: the old revision may still get requests.
    harness.replica.resync()
    await harness.drain_queue()
    assert (await harness.status(LAC))["traffic"] == f"{first}=100"
    await harness.advance(DRAIN + 1)
    assert first in await harness.serving.running()
    await harness.route()
    assert first in await harness.serving.running()
    await harness.advance(DRAIN + 1)
    assert (await harness.revision(first))["role"] == "Retired"
    assert first in await harness.serving.revisions()


async def test_a_return_to_the_old_spec_uses_the_old_revision(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness)
    await harness.ready(second)
    await harness.advance(DRAIN + 1)
    await harness.change(default=make_endpoint("1"))
    await harness.ready(first)
    assert await harness.traffic() == {first: 100}
    assert len((await harness.status(LAC))["revisions"]) == 2


async def test_a_change_while_another_is_on_its_way_replaces_it(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness)
    third = await harness.revised(default=make_endpoint("3"))
    assert len({first, second, third}) == 3
    await harness.ready(second)
    assert await harness.traffic() == {first: 100}
    await harness.ready(third)
    assert await harness.traffic() == {third: 100}


async def test_old_revisions_beyond_the_limit_are_deleted_and_no_others(harness: ServingHarness) -> None:
    stable = await harness.served(revisionHistoryLimit=1)
    seen = [stable]
    for tag in ("2", "3", "4"):
        seen.append(await harness.revised(default=make_endpoint(tag)))
        await harness.ready(seen[-1])
        await harness.advance(DRAIN + 1)
    assert await harness.serving.revisions() == sorted(seen[-2:])
    assert [r["name"] for r in (await harness.status(LAC))["revisions"]] == seen[:1:-1]


async def test_the_default_changes_while_a_canary_serves(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness, 20)
    assert await harness.traffic() == {stable: 80, canary: 20}
    successor = await harness.revised(default=make_endpoint("3"))
    assert successor not in (stable, canary)
    await harness.ready(successor)
    assert await harness.traffic() == {successor: 80, canary: 20}


async def test_a_canary_gets_its_percent_once_it_is_ready(harness: ServingHarness) -> None:
    stable = await harness.served()
    canary = await harness.revised(canary=make_endpoint("2"), canaryTrafficPercent=20)
    assert await harness.traffic() == {stable: 100}
    await harness.ready(canary)
    assert await harness.traffic() == {stable: 80, canary: 20}
    assert (await harness.status(LAC))["canary"]["name"] == canary
    assert await harness.reason("CanaryEndpointReady") == ("True", "Serving")
    assert harness.facts()[-1] == "CanaryStarted"


async def test_a_canary_without_a_percent_gets_half(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness)
    assert await harness.traffic() == {stable: 50, canary: 50}


async def test_a_canary_that_is_removed_gets_nothing(harness: ServingHarness) -> None:
    stable, _ = await with_canary(harness, 20)
    await harness.change(canary=None, canaryTrafficPercent=None)
    assert await harness.traffic() == {stable: 100}
    assert harness.facts()[-1] == "CanaryRolledBack"


async def test_a_canary_that_becomes_the_default_takes_over_at_once(harness: ServingHarness) -> None:
    _, canary = await with_canary(harness, 20)
    await harness.change(default=make_endpoint("2"), canary=None, canaryTrafficPercent=None)
    assert await harness.traffic() == {canary: 100}
    assert "CanaryRolledBack" not in harness.facts()


async def test_somebody_goes_back_to_an_old_revision_for_a_while(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness, rollout={"mode": "Manual"})
    await harness.ready(second)
    await harness.advance(DRAIN + 1)
    await harness.annotate(serve=first)
    await harness.ready(first)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("HeldByHand") == ("True", "ServedByHand")
    await harness.annotate(serve="")
    await harness.ready(second)
    assert await harness.traffic() == {second: 100}
    assert await harness.reason("HeldByHand") == ("False", "Recovered")


async def test_nobody_is_held_to_a_revision_that_is_not_recorded(harness: ServingHarness) -> None:
    stable = await harness.served()
    await harness.annotate(serve="lac-0000000000")
    assert await harness.traffic() == {stable: 100}


async def test_a_revision_that_cannot_start_says_why_with_its_last_lines(harness: ServingHarness) -> None:
    await harness.apply()
    await harness.pending()
    await harness.drain_queue()
    name = await harness.stable()
    await harness.serving.make_unready(name)
    await harness.drain_queue()
    await harness.advance(1)
    condition = await harness.condition(LAC, "DefaultEndpointReady")
    assert (condition["status"], condition["reason"]) == ("False", "CrashLoopBackOff")
    assert "exit code 1: no such file: /models/lac" in condition["message"]
    assert "loading" in condition["message"]
    assert (await harness.status(LAC))["reason"] == "CrashLoopBackOff"


def test_the_last_lines_of_a_container_have_no_noise() -> None:
    log = (
        "loading\nI1127 21:42:47.57 1 pool.cc:9] opened\n"
        'Traceback (most recent call last):\n  File "/app/serve.py", line 3, in <module>\n'
        "OSError: no model\nI1127 21:42:47.57 1 pool.cc:12] closed\n"
    )
    waiting = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ended = {"lastState": {"terminated": {"exitCode": 1, "message": log}}}
    pod = {"metadata": {"name": "a"}, "status": {"containerStatuses": [waiting | ended]}}
    trouble = trouble_of([pod])
    assert trouble is not None
    message = trouble[1]
    assert message.startswith(
        "container main ended with exit code 1: OSError: no model (before it: loading | "
    )
    assert "pool.cc" not in message


async def test_a_port_on_which_nothing_answers_is_named(plain: ServingHarness) -> None:
    await plain.apply()
    name = await plain.stable()
    pod = waiting_pod(name, LAC.namespace, {"PaddleService": LAC.name, REVISION: name}, "")
    pod["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    await plain.cluster.create(PODS, pod)
    await plain.cluster.patch(
        PODS, Key(LAC.namespace, f"{name}-0"), {"status": pod["status"]}, subresource="status"
    )
    await plain.drain_queue()
    await plain.advance(1)
    assert "port 9292" in (await plain.condition(LAC, "DefaultEndpointReady"))["message"]


async def test_a_service_that_stops_answering_is_degraded_and_ready_again(harness: ServingHarness) -> None:
    stable = await harness.served()
    await harness.serving.make_unready(stable)
    await harness.drain_queue()
    await harness.advance(1)
    assert await harness.reason("Ready") == ("False", "CrashLoopBackOff")
    await harness.ready(stable)
    assert harness.facts() == ["RevisionReady", "ServiceReady", "ServiceDegraded", "ServiceReady"]


async def test_the_other_pods_reach_the_stable_revision_by_one_name(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness)
    service = await harness.get(Key("default", "lac-default-private"), SERVICES)
    assert service["spec"]["selector"]["elasticserving.paddlepaddle.org/revision"] == first
    await harness.ready(second)
    service = await harness.get(Key("default", "lac-default-private"), SERVICES)
    assert service["spec"]["selector"]["elasticserving.paddlepaddle.org/revision"] == second


async def test_a_deleted_service_leaves_nothing(harness: ServingHarness) -> None:
    await harness.served()
    await harness.delete(LAC)
    await harness.drain_queue()
    assert not await harness.exists(LAC, PADDLE_SERVICES)
    assert harness.facts()[-1] == "ServiceDeleted"


async def test_what_is_deleted_by_hand_is_made_again(harness: ServingHarness) -> None:
    stable = await harness.served()
    await harness.delete(Key("default", "lac-default-private"), SERVICES)
    await harness.drain_queue()
    service = await harness.get(Key("default", "lac-default-private"), SERVICES)
    assert service["spec"]["selector"]["elasticserving.paddlepaddle.org/revision"] == stable


@pytest.mark.parametrize("when", range(1, 12))
async def test_a_crash_at_any_write_loses_nothing(harness: ServingHarness, when: int) -> None:
    first, second = await to_second_version(harness)
    await harness.killed_at(when, harness.ready(second))
    await harness.serving.make_ready(second)
    harness.replica.resync()
    await harness.drain_queue()
    await harness.route()
    await harness.route()
    assert await harness.traffic() == {second: 100}
    assert first in await harness.serving.revisions()
    assert harness.facts().count("CanaryPromoted") == 1
