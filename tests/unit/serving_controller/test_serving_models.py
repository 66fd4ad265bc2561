"""Published models: which service takes which version, in what order, and through restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.serving_controller.conftest import DRAIN, GOOD, LAC, ServingHarness

from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.keys import Key
from paddlewheel.testkit.paddleservices import make_published
from serving_controller.domain.chosen import Publication, choose
from serving_controller.models import Models

FOLLOWS = {"model": {"name": "digits"}}


def published(harness: ServingHarness, version: str, **where: Any) -> Event:
    return make_published("digits", version, time=harness.clock.now(), **where)


def digest_of(version: str) -> str:
    """Of its publication."""
    data = make_published("digits", version).data
    assert isinstance(data, ModelPublished)
    return data.digest


async def model_of(harness: ServingHarness, revision: str) -> tuple[str, str]:
    model = (await harness.revision(revision))["model"]
    return model["version"], model["uri"]


async def test_a_service_waits_for_its_model_and_says_so(plain: ServingHarness) -> None:
    await plain.apply(default=FOLLOWS)
    assert await plain.reason("DefaultEndpointReady") == ("False", "ModelNotPublished")
    assert "digits" in (await plain.condition(LAC, "DefaultEndpointReady"))["message"]
    assert not await plain.serving.revisions()
    await plain.publish(published(plain, "1"))
    await plain.play()
    assert await model_of(plain, await plain.stable()) == ("1", "s3://models/digits/1")
    assert await plain.reason("Ready") == ("True", "Serving")


async def test_no_version_is_taken_before_all_are_read() -> None:
    """At a start they come one by one: a service would roll from the first to the last."""
    woken: list[Key] = []
    models = Models(woken.append)
    wanted = frozenset({"digits"})
    for number in (1, 2):
        event = make_published("digits", str(number), time=datetime(2026, 1, number, tzinfo=UTC))
        await models.published(Delivery(event, "", 1, number, event.time))
        assert models.of("default", wanted) == {}
    assert not woken
    models.caught_up()
    assert woken == [Key("default", "digits")]
    assert models.of("default", wanted)["digits"].version == "2"


async def test_a_service_that_is_made_later_has_the_model_too(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    await plain.served(default=FOLLOWS)
    assert await model_of(plain, await plain.stable()) == ("1", "s3://models/digits/1")


async def test_a_new_version_is_rolled_out_by_the_rules(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    first = await plain.served(default=FOLLOWS, rollout={})
    await plain.clock.advance(10)
    await plain.publish(published(plain, "2"))
    second = await plain.newest()
    assert await model_of(plain, second) == ("2", "s3://models/digits/2")
    await plain.ready(second)
    assert await plain.traffic() == {first: 95, second: 5}


async def rolling_out(harness: ServingHarness) -> tuple[str, str]:
    """Version 2 is watched beside version 1; gives both revisions."""
    await harness.publish(published(harness, "1"))
    first = await harness.served(default=FOLLOWS, rollout={})
    await harness.clock.advance(10)
    await harness.publish(published(harness, "2"))
    second = await harness.newest()
    await harness.ready(second)
    await harness.clock.advance(10)
    return first, second


async def test_a_newer_version_waits_for_the_end_of_a_rollout(plain: ServingHarness) -> None:
    first, second = await rolling_out(plain)
    for version in ("3", "4", "5"):
        await plain.publish(published(plain, version))
        assert await plain.newest() == second
        await plain.look({first: GOOD, second: GOOD})
    assert await plain.stable() == second
    third = await plain.newest()
    assert await model_of(plain, third) == ("5", "s3://models/digits/5")
    await plain.ready(third)
    assert await plain.traffic() == {second: 95, third: 5}


async def test_a_newer_version_is_taken_once_an_older_one_never_became_ready(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    first = await plain.served(default=FOLLOWS, rollout={"deadlineSeconds": 60})
    for version in ("2", "3"):
        await plain.clock.advance(10)
        await plain.publish(published(plain, version))
    assert await model_of(plain, await plain.newest()) == ("2", "s3://models/digits/2")
    await plain.advance(61)
    await plain.advance(DRAIN)
    assert await model_of(plain, await plain.newest()) == ("3", "s3://models/digits/3")
    assert await plain.traffic() == {first: 100}


async def test_a_newer_version_is_taken_once_the_older_one_was_rolled_back(plain: ServingHarness) -> None:
    first, second = await rolling_out(plain)
    await plain.publish(published(plain, "3"))
    await plain.annotate(abort=second)
    third = await plain.newest()
    assert await model_of(plain, third) == ("3", "s3://models/digits/3")
    assert await plain.traffic() == {first: 100}


async def test_without_rules_a_newer_version_is_taken_at_once(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    await plain.served(default=FOLLOWS)
    for version in ("2", "3"):
        await plain.clock.advance(10)
        await plain.publish(published(plain, version))
        assert await model_of(plain, await plain.newest()) == (version, f"s3://models/digits/{version}")


async def test_an_older_version_that_arrives_late_changes_nothing(plain: ServingHarness) -> None:
    early = published(plain, "1")
    await plain.clock.advance(10)
    await plain.publish(published(plain, "2"))
    await plain.served(default=FOLLOWS)
    await plain.publish(early)
    assert await model_of(plain, await plain.stable()) == ("2", "s3://models/digits/2")


async def test_a_fixed_version_takes_only_its_own_publication(plain: ServingHarness) -> None:
    await plain.apply(default={"model": {"name": "digits", "version": "1"}})
    await plain.publish(published(plain, "2"))
    assert await plain.reason("DefaultEndpointReady") == ("False", "ModelNotPublished")
    await plain.clock.advance(10)
    await plain.publish(published(plain, "1"))
    await plain.play()
    await plain.publish(make_published("digits", "3", time=plain.clock.now() + timedelta(seconds=9)))
    assert await model_of(plain, await plain.newest()) == ("1", "s3://models/digits/1")


@pytest.mark.parametrize("version", [None, "1"])
async def test_a_fixed_digest_takes_only_publications_of_it(
    plain: ServingHarness, version: str | None
) -> None:
    digest = digest_of("1")
    model = {"name": "digits", "digest": digest} | ({"version": version} if version else {})
    await plain.apply(default={"model": model})
    await plain.publish(published(plain, "2"))
    assert await plain.reason("DefaultEndpointReady") == ("False", "ModelNotPublished")
    assert digest in (await plain.condition(LAC, "DefaultEndpointReady"))["message"]
    await plain.clock.advance(10)
    await plain.publish(published(plain, "1"))
    await plain.play()
    stable = await plain.stable()
    await plain.publish(make_published("digits", "3", time=plain.clock.now() + timedelta(seconds=9)))
    assert await plain.newest() == stable
    assert (await plain.revision(stable))["model"]["digest"] == digest


async def test_a_fixed_digest_is_found_among_older_publications(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    await plain.clock.advance(10)
    await plain.publish(published(plain, "2"))
    await plain.served(default={"model": {"name": "digits", "digest": digest_of("1")}})
    assert await model_of(plain, await plain.stable()) == ("1", "s3://models/digits/1")


async def test_models_of_other_namespaces_and_names_are_none_of_its_business(plain: ServingHarness) -> None:
    await plain.apply(default=FOLLOWS)
    await plain.publish(published(plain, "1", namespace="other"))
    await plain.publish(make_published("letters", "1", time=plain.clock.now()))
    assert await plain.reason("DefaultEndpointReady") == ("False", "ModelNotPublished")


async def test_a_model_with_files_of_its_own_follows_nothing(plain: ServingHarness) -> None:
    await plain.served(default={"model": {"name": "digits", "uri": "s3://mine"}})
    await plain.publish(published(plain, "9"))
    assert await model_of(plain, await plain.newest()) == ("1", "s3://mine")


def test_the_newest_is_chosen_also_when_the_stream_has_only_older_ones() -> None:
    old, new = (
        Publication("m", v, "", "", datetime(2026, 1, day, tzinfo=UTC)) for v, day in (("1", 1), ("2", 2))
    )
    both = frozenset({"m"})
    assert choose({"m": new}, {"m": old}, both) == {"m": new}
    assert choose({"m": old}, {"m": new}, both) == {"m": new}
    assert choose({"m": old}, {}, frozenset()) == {}


async def test_the_choice_survives_a_restart_without_the_stream(plain: ServingHarness) -> None:
    await plain.publish(published(plain, "1"))
    stable = await plain.served(default=FOLLOWS)
    with plain.bus_down():
        await plain.restart()
        plain.replica.resync()
        with plain.counted_writes() as writes:
            await plain.drain_queue()
        assert not writes
    assert await plain.newest() == stable
