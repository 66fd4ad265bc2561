"""Measured rollouts over the whole service: steps, verdicts, deadlines, and what happens in between."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.serving_controller.conftest import (
    BAD,
    DRAIN,
    GOOD,
    LAC,
    STEP,
    ServingHarness,
    to_second_version,
    with_canary,
)

from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import HTTP_ROUTES, KNATIVE_SERVICES
from paddlewheel.testkit.paddleservices import make_endpoint
from serving_controller.domain.judge import Counts
from serving_controller.domain.rollout import RESUMES
from serving_controller.timing import POD_MOVE_GRACE_SECONDS


def canary_facts(harness: ServingHarness) -> list[str]:
    return [fact for fact in harness.facts() if fact.startswith("Canary")]


async def begun(harness: ServingHarness, **rollout: Any) -> tuple[str, str]:
    """A rollout in its first step: the stable revision, and the candidate."""
    first, second = await to_second_version(harness, rollout=rollout)
    await harness.ready(second)
    return first, second


async def test_a_good_change_goes_through_the_steps_and_is_promoted(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    shares = []
    for _ in range(3):
        shares.append((await harness.traffic())[second])
        await harness.look({first: GOOD, second: GOOD})
    assert shares == [5, 20, 50]
    assert await harness.traffic() == {second: 100}
    assert await harness.stable() == second
    assert harness.facts()[2:] == [
        "RevisionReady",
        "CanaryStarted",
        "CanaryStepped",
        "CanaryStepped",
        "CanaryPromoted",
    ]
    assert "rollout" not in await harness.status(LAC)


async def test_nothing_is_judged_before_the_gateway_has_taken_the_shares(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness, rollout={})
    await harness.introduced(second)
    harness.figures.counts = {first: GOOD, second: GOOD}
    await harness.advance(STEP)
    assert await harness.traffic() == {first: 95, second: 5}
    assert await harness.reason("Progressing") == ("True", "RoutePending")


async def test_every_step_is_measured_for_itself(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.look({first: GOOD, second: GOOD})
    await harness.look({first: GOOD, second: GOOD})
    assert list(dict.fromkeys(harness.figures.windows)) == [f"{second}/{step}" for step in (1, 2, 3)]


async def test_a_bad_change_is_rolled_back_at_the_next_look_with_its_figures(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.look({first: GOOD, second: BAD}, seconds=6)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "TooManyErrors")
    rollout = (await harness.status(LAC))["rollout"]
    assert rollout["verdict"]["candidate"] == {"requests": 200, "errors": 60, "p95": 0.0495}
    assert rollout["verdict"]["pValue"] < 1e-4
    fact = harness.last
    assert (fact.reason, fact.statistics.canary.errors) == ("TooManyErrors", 60)
    assert await harness.reason("Ready") == ("True", "Serving")


async def test_what_was_rolled_back_is_not_tried_again_but_something_else_is(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.look({first: GOOD, second: BAD})
    await harness.look({first: GOOD, second: GOOD}, seconds=3600)
    assert await harness.traffic() == {first: 100}
    third = await harness.revised(default=make_endpoint("3"))
    await harness.ready(third)
    assert await harness.traffic() == {first: 95, third: 5}
    assert await harness.reason("RolledBack") == ("False", "RolloutComplete")


async def test_a_return_to_the_stable_spec_ends_the_rollout(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.change(default=make_endpoint("1"))
    assert await harness.traffic() == {first: 100}
    assert harness.last.reason == "Superseded"
    assert second in await harness.serving.revisions()


async def test_a_change_in_the_middle_replaces_the_candidate(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.change(default=make_endpoint("3"))
    assert await harness.traffic() == {first: 100}
    await harness.pending()
    await harness.drain_queue()
    third = await harness.newest()
    await harness.ready(third)
    assert await harness.traffic() == {first: 95, third: 5}
    assert harness.facts()[-3:] == ["CanaryRolledBack", "RevisionReady", "CanaryStarted"]
    assert second not in await harness.traffic()


async def test_without_requests_the_step_waits(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    few = Counts(3, 0, {0.05: 3})
    await harness.look({first: GOOD, second: few}, seconds=120)
    assert await harness.traffic() == {first: 95, second: 5}


async def test_without_figures_it_waits_says_so_and_is_rolled_back_at_its_deadline(
    harness: ServingHarness,
) -> None:
    first, second = await begun(harness, deadlineSeconds=600)
    await harness.look(None, seconds=60)
    condition = await harness.condition(LAC, "Progressing")
    assert (condition["reason"], condition["message"]) == ("NoFigures", "the gateway does not answer")
    assert await harness.traffic() == {first: 95, second: 5}
    await harness.look(None, seconds=541)
    assert await harness.traffic() == {first: 95, second: 5}
    await harness.look(None, seconds=30)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "DeadlineExceeded")


async def test_a_latency_that_the_figures_do_not_tell_is_not_promoted(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    bare = Counts(1000)
    await harness.look({first: bare, second: bare}, seconds=60)
    condition = await harness.condition(LAC, "Progressing")
    assert condition["reason"] == "NoFigures"
    assert "metrics.prometheus.buckets" in condition["message"]
    assert await harness.traffic() == {first: 95, second: 5}
    await harness.look({first: GOOD, second: BAD}, seconds=6)
    assert await harness.reason("RolledBack") == ("True", "TooManyErrors")


async def test_a_revision_that_never_becomes_ready_is_rolled_back_at_its_deadline(
    harness: ServingHarness,
) -> None:
    first, second = await to_second_version(harness, rollout={"deadlineSeconds": 60})
    await harness.serving.make_unready(second, "ImagePullBackOff")
    await harness.advance(1)
    assert await harness.reason("Progressing") == ("True", "RevisionStarting")
    await harness.advance(61)
    assert await harness.reason("RolledBack") == ("True", "DeadlineExceeded")
    assert "cannot pull image" in (await harness.condition(LAC, "RolledBack"))["message"]
    assert await harness.traffic() == {first: 100}


async def silenced(harness: ServingHarness) -> tuple[str, str]:
    """The last pod of a canary that was watched has gone."""
    first, second = await begun(harness)
    await harness.serving.make_unready(second)
    await harness.drain_queue()
    await harness.advance(1)
    await harness.route()
    return first, second


async def test_a_canary_whose_last_pod_goes_loses_its_requests_at_once_and_then_its_trial(
    harness: ServingHarness,
) -> None:
    first, _ = await silenced(harness)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("Progressing") == ("True", "RevisionStarting")
    await harness.advance(POD_MOVE_GRACE_SECONDS)
    assert await harness.reason("RolledBack") == ("True", "RevisionFailed")
    assert await harness.traffic() == {first: 100}


async def test_a_canary_whose_pod_moves_goes_on_with_its_trial(harness: ServingHarness) -> None:
    first, second = await silenced(harness)
    await harness.advance(POD_MOVE_GRACE_SECONDS / 2)
    await harness.ready(second)
    assert await harness.traffic() == {first: 95, second: 5}
    assert harness.facts()[-1] == "CanaryStarted"
    for _ in range(3):
        await harness.look({first: GOOD, second: GOOD})
    assert await harness.traffic() == {second: 100}


async def test_a_canary_that_is_away_again_has_its_time_again(harness: ServingHarness) -> None:
    first, second = await silenced(harness)
    await harness.ready(second)
    await harness.advance(POD_MOVE_GRACE_SECONDS)
    await harness.serving.make_unready(second)
    await harness.advance(1)
    await harness.ready(second)
    assert await harness.traffic() == {first: 95, second: 5}


async def test_a_canary_that_comes_back_gets_requests_only_once_the_gateway_knows_it(
    plain: ServingHarness,
) -> None:
    first, second = await silenced(plain)
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    assert await plain.traffic() == {first: 100, second: 0}
    await plain.route()
    assert await plain.traffic() == {first: 95, second: 5}


async def test_when_the_stable_revision_answers_nothing_a_ready_one_takes_over(
    harness: ServingHarness,
) -> None:
    await harness.apply(rollout={})
    await harness.pending()
    await harness.drain_queue()
    await harness.serving.make_unready(await harness.stable())
    second = await harness.revised(default=make_endpoint("2"))
    await harness.ready(second)
    await harness.advance(31)
    assert await harness.traffic() == {second: 100}
    promoted: list[Any] = [e.data for e in harness.published if e.type.endswith("CanaryPromoted")]
    assert [fact.reason for fact in promoted] == ["NothingToCompare"]


async def test_a_stable_revision_that_is_away_for_a_moment_promotes_no_bad_one(
    harness: ServingHarness,
) -> None:
    first, second = await begun(harness)
    await harness.serving.make_unready(first)
    await harness.look({first: GOOD, second: BAD}, seconds=6)
    assert await harness.traffic() == {first: 95, second: 5}
    await harness.serving.make_ready(first)
    await harness.look({first: GOOD, second: BAD}, seconds=6)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "TooManyErrors")


@pytest.mark.parametrize("when", range(1, 8))
async def test_killed_while_it_rolls_back_it_brings_no_bad_revision_back(
    harness: ServingHarness, when: int
) -> None:
    """At each write; the figures are away afterwards."""
    first, second = await begun(harness)
    harness.figures.counts = {first: GOOD, second: BAD}
    await harness.killed_at(when, harness.advance(6))
    was_moved = await harness.traffic() == {first: 100}
    harness.figures.counts = None if was_moved else {first: GOOD, second: BAD}
    harness.replica.resync()
    await harness.drain_queue()
    await harness.advance(6)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "TooManyErrors")
    assert harness.facts().count("CanaryRolledBack") == 1


async def test_what_the_route_does_not_say_yet_is_told_to_nobody(plain: ServingHarness) -> None:
    first, second = await begun(plain)
    told = plain.facts()
    plain.figures.counts = {first: GOOD, second: BAD}
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.advance(30)
        assert plain.facts() == told
        assert (await plain.status(LAC))["rollout"]["phase"] == "RollingBack"
    await plain.advance(61)
    assert await plain.traffic() == {first: 100}
    assert plain.facts() == [*told, "CanaryRolledBack"]


async def test_words_about_an_ended_rollout_do_not_bind_the_next(harness: ServingHarness) -> None:
    """The same content makes the same revision."""
    first, second = await begun(harness)
    await harness.annotate(abort=second)
    assert await harness.traffic() == {first: 100}
    await harness.change(default=make_endpoint("1"))
    await harness.change(default=make_endpoint("2"))
    await harness.ready(second)
    assert await harness.traffic() == {first: 95, second: 5}


async def test_what_was_rolled_back_is_remembered_while_another_is_served_by_hand(
    harness: ServingHarness,
) -> None:
    first, second = await begun(harness)
    await harness.look({first: GOOD, second: BAD}, seconds=6)
    await harness.annotate(serve=first)
    await harness.annotate(serve="")
    await harness.look({first: GOOD, second: GOOD})
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "TooManyErrors")


async def test_a_canary_by_hand_goes_on_by_rules_from_its_percent(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness, 30)
    await harness.change(rollout={})
    await harness.route()
    assert await harness.traffic() == {stable: 50, canary: 50}
    await harness.look({stable: GOOD, canary: BAD}, seconds=6)
    assert await harness.traffic() == {stable: 100}


async def test_steps_that_were_taken_away_do_not_end_the_judging(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    for _ in range(2):
        await harness.look({first: GOOD, second: GOOD})
    await harness.change(rollout={"steps": [{"percent": 5}, {"percent": 100}]})
    await harness.look({first: GOOD, second: Counts(1, 0, {0.05: 1})}, seconds=6)
    assert second not in [name for name, share in (await harness.traffic()).items() if share == 100]


@pytest.mark.parametrize("looks", [0, 1])
async def test_without_steps_a_change_under_way_is_promoted(harness: ServingHarness, looks: int) -> None:
    first, second = await begun(harness)
    for _ in range(looks):
        await harness.look({first: GOOD, second: GOOD})
    await harness.change(rollout={"steps": [{"percent": 100}]})
    await harness.route()
    assert await harness.traffic() == {second: 100}
    assert harness.last.reason == "Promoted"


async def test_without_steps_a_canary_by_hand_is_promoted(harness: ServingHarness) -> None:
    _, canary = await with_canary(harness, 30)
    await harness.change(rollout={"steps": [{"percent": 100}]})
    await harness.route()
    assert await harness.traffic() == {canary: 100}


async def test_without_steps_a_change_beside_a_silent_revision_waits_and_can_be_aborted(
    harness: ServingHarness,
) -> None:
    first, second = await begun(harness)
    await harness.serving.make_unready(first)
    await harness.change(rollout={"steps": [{"percent": 100}]})
    assert await harness.stable() == first
    await harness.annotate(abort=second)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "RolledBackByHand")


async def test_a_step_longer_than_the_deadline_is_not_its_failure(harness: ServingHarness) -> None:
    steps = [{"percent": 5, "minSeconds": 900}, {"percent": 100}]
    first, second = await begun(harness, steps=steps, deadlineSeconds=600)
    for _ in range(15):
        await harness.look({first: GOOD, second: GOOD}, seconds=61)
    assert await harness.traffic() == {second: 100}


async def away(harness: ServingHarness, seconds: float) -> None:
    """The controller is gone for some time; another process goes on."""
    await harness.clock.advance(seconds)
    await harness.restart()
    await harness.drain_queue()


async def test_a_controller_that_was_away_gives_a_step_its_time_again(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    harness.figures.counts = {first: GOOD, second: Counts(1)}
    await away(harness, 1900)
    await harness.advance(6)
    assert await harness.traffic() == {first: 95, second: 5}
    for _ in range(3):
        await harness.look({first: GOOD, second: GOOD})
    assert await harness.traffic() == {second: 100}


async def test_after_its_absence_a_step_has_a_deadline_all_the_same(harness: ServingHarness) -> None:
    first, _ = await begun(harness, deadlineSeconds=600)
    await away(harness, 1900)
    await harness.look(None, seconds=600)
    assert await harness.reason("Progressing") == ("True", "NoFigures")
    await harness.look(None, seconds=60)
    assert await harness.reason("RolledBack") == ("True", "DeadlineExceeded")
    assert await harness.traffic() == {first: 100}


async def test_a_controller_that_is_always_away_does_not_lengthen_a_step_for_ever(
    harness: ServingHarness,
) -> None:
    first, second = await begun(harness)
    harness.figures.counts = {first: GOOD, second: Counts(1)}
    for _ in range(RESUMES):
        await away(harness, 1900)
        assert await harness.traffic() == {first: 95, second: 5}
    await away(harness, 1900)
    assert await harness.reason("RolledBack") == ("True", "DeadlineExceeded")


async def moved(harness: ServingHarness) -> str:
    """The service moves to the other engine, where its rollout begins anew; gives the mode."""
    await harness.drain_queue()
    for _ in range(6):
        await harness.play()
        await harness.advance(6)
    return str((await harness.status(LAC))["mode"])


async def test_an_engine_that_comes_waits_for_the_end_of_a_rollout(plain: ServingHarness) -> None:
    first, second = await begun(plain)
    plain.install_knative()
    await plain.drain_queue()
    for _ in range(3):
        assert not await plain.names(KNATIVE_SERVICES)
        await plain.look({first: GOOD, second: GOOD})
    assert await plain.traffic() == {second: 100}
    plain.with_knative()
    assert await moved(plain) == "Knative"
    assert await plain.traffic() == {second: 100}
    assert plain.facts().count("CanaryStarted") == plain.facts().count("CanaryPromoted") == 1


async def test_an_engine_that_never_answers_keeps_no_bad_canary(plain: ServingHarness) -> None:
    """It comes after the decision was recorded, and before the requests have moved."""
    first, second = await begun(plain)
    plain.figures.counts = {first: GOOD, second: BAD}
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.advance(6)
    assert (await plain.status(LAC))["rollout"]["phase"] == "RollingBack"
    plain.install_knative()
    await plain.advance(60)
    await plain.route()
    assert await plain.traffic() == {first: 100}
    assert await plain.reason("RolledBack") == ("True", "TooManyErrors")


async def test_an_engine_that_never_answers_holds_no_change_up(plain: ServingHarness) -> None:
    first = await plain.served(rollout={})
    plain.install_knative()
    await plain.drain_queue()
    assert await plain.names(KNATIVE_SERVICES) == ["lac"]
    second = await plain.revised(default=make_endpoint("2"))
    await plain.ready(second)
    assert await plain.traffic() == {first: 95, second: 5}
    assert await plain.reason("EngineReady") == ("True", "SwitchingEngine")
    await plain.annotate(abort=second)
    assert await plain.traffic() == {first: 100}


async def test_an_engine_that_never_answers_keeps_nobody_from_serving_another_by_hand(
    plain: ServingHarness,
) -> None:
    first, second = await to_second_version(plain)
    await plain.ready(second)
    plain.install_knative()
    await plain.drain_queue()
    await plain.annotate(serve=first)
    await plain.ready(first)
    assert await plain.traffic() == {first: 100}


async def test_an_engine_that_never_answers_keeps_no_requests_with_a_dead_canary(
    plain: ServingHarness,
) -> None:
    stable, canary = await with_canary(plain, 30)
    plain.install_knative()
    await plain.drain_queue()
    await plain.serving.make_unready(canary)
    await plain.drain_queue()
    await plain.advance(1)
    assert await plain.traffic() == {stable: 100}


async def test_an_engine_that_goes_is_not_the_canarys_fault(knative: ServingHarness) -> None:
    first, second = await begun(knative)
    knative.without_knative()
    assert await moved(knative) == "Kubernetes"
    assert "CanaryRolledBack" not in knative.facts()
    assert knative.facts().count("CanaryStarted") == 1
    assert await knative.traffic() == {first: 95, second: 5}


async def blinked(harness: ServingHarness, revision: str) -> None:
    """Its last pod goes, and comes back."""
    await harness.serving.make_unready(revision)
    await harness.advance(1)
    await harness.route()
    await harness.ready(revision)


async def test_the_end_of_a_canary_that_had_lost_its_share_is_told(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness, 50)
    await harness.serving.make_unready(canary)
    await harness.advance(1)
    assert await harness.traffic() == {stable: 100}
    await harness.change(canary=None, canaryTrafficPercent=None)
    assert canary_facts(harness) == ["CanaryStarted", "CanaryRolledBack"]
    assert harness.last.reason == "Superseded"


async def test_a_canary_whose_pods_come_and_go_is_started_once(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness, 50)
    await blinked(harness, canary)
    await blinked(harness, canary)
    assert await harness.traffic() == {stable: 50, canary: 50}
    assert canary_facts(harness).count("CanaryStarted") == 1


async def test_a_rollback_that_meets_another_spec_keeps_its_reason_and_figures(plain: ServingHarness) -> None:
    first, second = await begun(plain)
    plain.figures.counts = {first: GOOD, second: BAD}
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.advance(6)
    await plain.change(default=make_endpoint("3"))
    await plain.advance(61)
    (end,) = [e.data for e in plain.published if e.type.endswith("CanaryRolledBack")]
    told: Any = end
    assert (told.revision, told.reason) == (second, "TooManyErrors")
    assert told.statistics.canary.errors == 60


async def test_a_rollback_that_meets_a_revision_served_by_hand_is_told_and_remembered(
    plain: ServingHarness,
) -> None:
    first, second = await begun(plain)
    plain.figures.counts = {first: GOOD, second: BAD}
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.advance(6)
        await plain.annotate(serve=first)
    await plain.advance(61)
    await plain.annotate(serve="")
    await plain.look({first: GOOD, second: GOOD})
    assert await plain.traffic() == {first: 100}
    assert canary_facts(plain) == ["CanaryStarted", "CanaryRolledBack"]
    assert plain.last.reason == "TooManyErrors"


async def test_a_rollback_that_meets_mode_manual_ends_as_somebody_asks(plain: ServingHarness) -> None:
    first, second = await begun(plain)
    plain.figures.counts = {first: GOOD, second: BAD}
    with plain.failing(Retry("Unavailable", "try later"), "patch", HTTP_ROUTES):
        await plain.advance(6)
        await plain.change(rollout={"mode": "Manual"})
    await plain.advance(61)
    assert await plain.traffic() == {second: 100}
    assert canary_facts(plain) == ["CanaryStarted", "CanaryPromoted"]


async def test_a_rejected_canary_that_somebody_gives_requests_by_hand_is_started(
    harness: ServingHarness,
) -> None:
    stable, canary = await with_canary(harness, 30, rollout={})
    await harness.annotate(abort=canary)
    assert await harness.traffic() == {stable: 100}
    await harness.change(rollout={"mode": "Manual"})
    await harness.ready(canary)
    assert await harness.traffic() == {stable: 70, canary: 30}
    assert canary_facts(harness) == ["CanaryStarted", "CanaryRolledBack", "CanaryStarted"]


async def test_a_canary_by_hand_that_goes_on_by_rules_is_started_once(harness: ServingHarness) -> None:
    await with_canary(harness, 5)
    await harness.change(rollout={})
    assert canary_facts(harness) == ["CanaryStarted", "CanaryStepped"]


async def test_a_canary_is_rolled_out_in_steps_and_stays_promoted(harness: ServingHarness) -> None:
    stable, canary = await with_canary(harness, rollout={})
    for _ in range(3):
        await harness.look({stable: GOOD, canary: GOOD})
    assert await harness.traffic() == {canary: 100}
    await harness.change(default=make_endpoint("2"), canary=None)
    assert await harness.traffic() == {canary: 100}
    assert harness.facts().count("CanaryStarted") == 1


async def test_the_last_step_may_be_the_first(harness: ServingHarness) -> None:
    first, second = await begun(harness, steps=[{"percent": 100}])
    assert await harness.traffic() == {second: 100}
    assert first in await harness.serving.revisions()


async def test_somebody_promotes_it_by_hand(harness: ServingHarness) -> None:
    _, second = await begun(harness)
    await harness.annotate(promote=second)
    assert await harness.traffic() == {second: 100}
    assert harness.last.reason == "PromotedByHand"


async def test_somebody_aborts_it_by_hand(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.annotate(abort=second)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "RolledBackByHand")


async def test_what_served_before_is_kept_however_many_were_rolled_back(harness: ServingHarness) -> None:
    first = await harness.served(rollout={}, revisionHistoryLimit=2)
    for tag in ("2", "3", "4"):
        await harness.ready(await harness.revised(default=make_endpoint(tag)))
        await harness.annotate(abort=await harness.newest())
        await harness.advance(DRAIN + 1)
    last = await harness.revised(default=make_endpoint("5"))
    await harness.ready(last)
    await harness.annotate(promote=last)
    await harness.route()
    await harness.advance(DRAIN + 1)
    assert await harness.stable() == last
    assert (await harness.revision(first))["wasStable"]
    assert len((await harness.status(LAC))["revisions"]) == 3


async def test_mode_manual_follows_the_spec_only(harness: ServingHarness) -> None:
    _, second = await begun(harness, mode="Manual")
    assert await harness.traffic() == {second: 100}


async def test_a_waiting_rollout_writes_nothing(harness: ServingHarness) -> None:
    first, second = await begun(harness)
    await harness.look({first: GOOD, second: Counts(3)}, seconds=6)
    with harness.counted_writes() as writes:
        for requests in range(4, 20):
            harness.figures.counts = {first: GOOD, second: Counts(requests, 0, {0.05: requests})}
            await harness.advance(6)
    assert not writes


@pytest.mark.parametrize("passes", range(6))
async def test_a_restart_in_the_middle_changes_nothing(harness: ServingHarness, passes: int) -> None:
    first, second = await begun(harness)
    for number in range(3):
        if number * 2 == passes:
            await harness.restart()
        harness.figures.counts = {first: GOOD, second: GOOD}
        await harness.advance(STEP)
        if number * 2 + 1 == passes:
            await harness.restart()
        harness.replica.resync()
        await harness.drain_queue()
        await harness.route()
    assert await harness.traffic() == {second: 100}
    assert harness.facts().count("CanaryPromoted") == 1
    assert harness.facts().count("CanaryStepped") == 2
