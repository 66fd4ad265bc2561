"""The service's status, computed afresh from the decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from paddlewheel.contracts.conditions import Condition, find, is_true, set_condition
from paddlewheel.contracts.crds.paddleservice import (
    AddressStatus,
    EndpointStatus,
    PaddleServiceStatus,
    RevisionStatus,
)
from paddlewheel.contracts.objects import labels_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp, seconds_stamp
from paddlewheel.operator.domain.plan import shorten
from serving_controller.domain import names
from serving_controller.domain.decision import Decision, has_moved, held_by_hand, restarted
from serving_controller.domain.facts import declare, is_declared
from serving_controller.domain.history import CANDIDATE, RETIRED, STABLE
from serving_controller.domain.mode import KUBERNETES, describe
from serving_controller.domain.model import Observed, Options, Service
from serving_controller.domain.pods import start_of
from serving_controller.domain.rollout import ROLLED_BACK, Outcome


def active_status(seen: Observed, decision: Decision, options: Options, now: datetime) -> PaddleServiceStatus:
    """Revisions, traffic, addresses, conditions and facts of a service that is to stay."""
    status = _changed(seen.status, observed_generation=seen.own.generation, phase="")
    status = _with_serving(seen, status, decision, options, now)
    status = _with_revisions(seen, status, decision)
    for condition in _conditions(seen, status, decision):
        status = with_condition(seen.own, status, condition, now)
    return _with_facts(seen, status, decision, now)


def invalid_status(seen: Observed, problems: str, now: datetime) -> PaddleServiceStatus:
    """Nothing is changed for a spec that can never work."""
    status = _changed(seen.status, observed_generation=seen.own.generation)
    return with_condition(
        seen.own, status, Condition(names.ACCEPTED, "False", Reason.INVALID_SPEC, shorten(problems)), now
    )


def deleted_status(seen: Observed, now: datetime) -> PaddleServiceStatus:
    """The last status, kept for as long as the last fact waits for the bus."""
    status = _changed(seen.status, phase=names.TERMINATING, observed_generation=seen.own.generation)
    if is_declared(status, "ServiceDeleted"):
        return status
    return declare(status, "ServiceDeleted", milliseconds_stamp(now))


def with_condition(
    own: Service, status: PaddleServiceStatus, condition: Condition, now: datetime
) -> PaddleServiceStatus:
    """Put one condition, stamped with the generation it was decided for."""
    stamped = replace(condition, observed_generation=own.generation)
    return _changed(status, conditions=set_condition(status.conditions, stamped, seconds_stamp(now)))


def _with_serving(
    seen: Observed, status: PaddleServiceStatus, decision: Decision, options: Options, now: datetime
) -> PaddleServiceStatus:
    outcome, own = decision.outcome, seen.own
    moved = has_moved(seen, decision, options)
    active = decision.choice.wanted if moved else decision.choice.active
    if outcome is None:
        return _changed(status, mode=active)
    private = f"http://{names.private_service(own.name)}.{own.key.namespace}.svc.cluster.local"
    return _changed(
        status,
        mode=active,
        url=decision.route.url,
        address=AddressStatus(url=private),
        default=EndpointStatus(name=outcome.stable),
        canary=EndpointStatus(name=outcome.candidate) if outcome.candidate else None,
        traffic=_shares(decision),
        selector=names.selector(own.name),
        rollout=restarted(outcome.rollout, now) if moved else outcome.rollout,
    )


def _shares(decision: Decision) -> str:
    """`digits-0a1b2c3d4e=95 digits-5f6a7b8c9d=5`, as the gateway knows it."""
    shares = sorted(decision.routed.items(), key=lambda share: -share[1])
    return " ".join(f"{name}={percent}" for name, percent in shares if percent)


def _with_revisions(seen: Observed, status: PaddleServiceStatus, decision: Decision) -> PaddleServiceStatus:
    newest_first = sorted(decision.kept.all, key=lambda name: -decision.known[name].number)
    revisions = tuple(_revision(seen, decision, name) for name in newest_first)
    total = sum(state.replicas for state in decision.states.values())
    return _changed(status, revisions=revisions, replicas=total)


def _revision(seen: Observed, decision: Decision, name: str) -> RevisionStatus:
    known, state = decision.known[name], decision.state(name)
    before = seen.status.revision(name) or RevisionStatus()
    role, pods = _role(decision.outcome, name), _pods_of(seen, name)
    # A retired one keeps its last words; those of one that runs are of now.
    last = (before.reason, before.message) if role == RETIRED else (str(state.reason), state.message)
    trouble = ("", "") if state.complete else last
    was_ready = before.was_ready or state.complete
    return RevisionStatus(
        name=name,
        number=known.number,
        role=role,
        image=known.revision.image,
        model=known.revision.model,
        traffic=decision.routed.get(name, 0),
        replicas=state.replicas,
        ready=state.ready,
        since=known.since.replace(microsecond=0),
        was_ready=was_ready,
        # A service's first revision is stable from the beginning, even if it never answers.
        was_stable=before.was_stable or (role == STABLE and was_ready),
        idle_since=decision.kept.idle.get(name),
        reason=trouble[0],
        message=shorten(trouble[1]),
        start=start_of(pods) or before.start,
    )


def _role(outcome: Outcome | None, name: str) -> str:
    if outcome is None:
        return RETIRED
    if name == outcome.stable:
        return STABLE
    return CANDIDATE if name in outcome.newest else RETIRED


def _pods_of(seen: Observed, name: str) -> list[Any]:
    return [pod for pod in seen.pods if labels_of(pod).get(names.LABEL_REVISION) == name]


# Conditions


def _conditions(seen: Observed, status: PaddleServiceStatus, decision: Decision) -> list[Condition]:
    found: list[Condition | None] = [
        Condition(names.ACCEPTED, "True", Reason.ACCEPTED),
        describe(decision.choice, seen.own.spec.mode),
        _default_ready(decision),
        _canary_ready(status, decision),
        _routes_ready(decision),
        _progressing(status, decision),
        _rolled_back(status, decision),
        _scales(seen, status, decision),
        _held(seen, status, decision),
    ]
    conditions = [condition for condition in found if condition is not None]
    return [*conditions, _ready(conditions)]


def _default_ready(decision: Decision) -> Condition:
    if decision.outcome is None:
        return Condition(names.DEFAULT_READY, "False", *_nothing_to_serve(decision))
    state = decision.state(decision.outcome.stable)
    if state.serves:
        return Condition(names.DEFAULT_READY, "True", Reason.SERVING)
    return Condition(names.DEFAULT_READY, "False", state.reason, shorten(state.message))


def _nothing_to_serve(decision: Decision) -> tuple[Reason, str]:
    if decision.missing:
        return Reason.MODEL_NOT_PUBLISHED, _waits_for_model(decision.missing)
    return Reason.KNATIVE_MISSING, ""


def _waits_for_model(name: str) -> str:
    return (
        f"no fact ModelPublished of {name} in this namespace: publish the model, or set model.uri or"
        " model.claim"
    )


def _canary_ready(status: PaddleServiceStatus, decision: Decision) -> Condition | None:
    outcome = decision.outcome
    if outcome is None or not outcome.candidate:
        if find(status.conditions, names.CANARY_READY) is None:
            return None
        return Condition(names.CANARY_READY, "Unknown", Reason.ROLLOUT_COMPLETE)
    state = decision.state(outcome.candidate)
    if not state.serves:
        return Condition(names.CANARY_READY, "False", state.reason, shorten(state.message))
    if not decision.route.can_split:
        return Condition(names.CANARY_READY, "False", Reason.CANNOT_SPLIT, decision.route.message)
    return Condition(names.CANARY_READY, "True", Reason.SERVING)


def _routes_ready(decision: Decision) -> Condition:
    route = decision.route
    ready = Condition(names.ROUTES_READY, str(route.ready), route.reason, shorten(route.message))
    return ready if decision.outcome is not None else replace(ready, message="")


def _progressing(status: PaddleServiceStatus, decision: Decision) -> Condition | None:
    outcome = decision.outcome
    if outcome is not None and outcome.reason is not None:
        return Condition(names.PROGRESSING, "True", outcome.reason, shorten(outcome.message))
    if outcome is not None and decision.missing:
        message = _waits_for_model(decision.missing)
        return Condition(names.PROGRESSING, "True", Reason.MODEL_NOT_PUBLISHED, message)
    if find(status.conditions, names.PROGRESSING) is None:
        return None
    return Condition(names.PROGRESSING, "False", Reason.ROLLOUT_COMPLETE)


def _rolled_back(status: PaddleServiceStatus, decision: Decision) -> Condition | None:
    rollout = decision.outcome.rollout if decision.outcome else None
    if rollout is not None and rollout.phase == ROLLED_BACK:
        remedy = "it is not tried again until the spec changes"
        message = f"{rollout.candidate}: {rollout.message}; {remedy}"
        return Condition(names.ROLLED_BACK, "True", rollout.reason, shorten(message))
    if not is_true(status.conditions, names.ROLLED_BACK):
        return None
    return Condition(names.ROLLED_BACK, "False", Reason.ROLLOUT_COMPLETE)


def _scales(seen: Observed, status: PaddleServiceStatus, decision: Decision) -> Condition | None:
    """Only of those who asked for something."""
    asked = seen.own.spec.service
    is_other = decision.choice.active == KUBERNETES and asked is not None and asked.metric != "cpu"
    if is_other and asked is not None and asked.max_scale != max(1, asked.min_scale):
        message = (
            f"service.metric {asked.metric} needs Knative: pods are added at {asked.target_utilization} % of"
            f" their"
            " CPU; install Knative, or set metric to cpu"
        )
        return Condition(names.SCALES, "False", Reason.METRIC_UNAVAILABLE, message)
    if find(status.conditions, names.SCALES) is None:
        return None
    return Condition(names.SCALES, "True", Reason.AS_ASKED)


def _held(seen: Observed, status: PaddleServiceStatus, decision: Decision) -> Condition | None:
    if held := held_by_hand(seen.own, decision.known):
        message = (
            f"{held} gets all requests: remove the annotation {names.ANNOTATION_SERVE} to follow the spec"
        )
        return Condition(names.HELD, "True", Reason.SERVED_BY_HAND, message)
    if find(status.conditions, names.HELD) is None:
        return None
    return Condition(names.HELD, "False", Reason.RECOVERED)


def _ready(conditions: list[Condition]) -> Condition:
    needed = (names.ENGINE_READY, names.DEFAULT_READY, names.ROUTES_READY)
    failed = next((c for c in conditions if c.type in needed and c.status != "True"), None)
    # Without its engine in the cluster it may go on in the one that it has.
    if failed is None or (failed.type == names.ENGINE_READY and _serves(conditions)):
        return Condition(names.READY, "True", Reason.SERVING)
    return Condition(names.READY, "False", failed.reason, failed.message)


def _serves(conditions: list[Condition]) -> bool:
    rest = (names.DEFAULT_READY, names.ROUTES_READY)
    return all(is_true(tuple(conditions), type_) for type_ in rest)


# Facts


def _with_facts(
    seen: Observed, status: PaddleServiceStatus, decision: Decision, now: datetime
) -> PaddleServiceStatus:
    at, outcome = milliseconds_stamp(now), decision.outcome
    for revision in reversed(status.revisions):
        before = seen.status.revision(revision.name)
        if revision.was_ready and not (before and before.was_ready):
            status = declare(status, "RevisionReady", at, revision=revision.name)
    for news in outcome.happenings if outcome else ():
        status = declare(
            status,
            news.fact,
            at,
            revision=news.revision,
            percent=news.percent,
            step=news.step,
            reason=str(news.reason),
            message=news.message,
            verdict=news.verdict,
        )
    return _with_readiness(seen, status, at)


def _with_readiness(seen: Observed, status: PaddleServiceStatus, at: str) -> PaddleServiceStatus:
    was, found = is_true(seen.status.conditions, names.READY), find(status.conditions, names.READY)
    is_ready = found is not None and found.status == "True"
    if found is None or was == is_ready:
        return status
    if is_ready:
        return declare(status, "ServiceReady", at, revision=status.stable)
    return declare(
        status,
        "ServiceDegraded",
        at,
        revision=status.stable,
        reason=found.reason,
        message=found.message,
    )


def _changed(status: PaddleServiceStatus, **changes: Any) -> PaddleServiceStatus:
    return status.model_copy(update=changes)
