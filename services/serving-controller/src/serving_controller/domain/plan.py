"""What to do about one service, and what to record once it is done. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from paddlewheel.contracts.conditions import Condition, find, is_true
from paddlewheel.contracts.crds import PADDLE_SERVICE
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus, RevisionStatus, ServingAnnouncement
from paddlewheel.contracts.crds.violations import Subject, find_violations
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain import plan as operator
from paddlewheel.operator.domain.plan import Applied, Create, KubernetesEvent, earliest
from serving_controller.domain import names
from serving_controller.domain.changes import LEADS, actions
from serving_controller.domain.chosen import write_chosen
from serving_controller.domain.decision import Decision, chosen_models, decide
from serving_controller.domain.model import Observed, Options, Service
from serving_controller.domain.rollout import OPEN, STEPPING, WITHDRAWN
from serving_controller.domain.status import active_status, deleted_status, invalid_status, with_condition

Plan = operator.Plan[PaddleServiceStatus]

_TROUBLES = (names.ACCEPTED, names.ENGINE_READY, names.DEFAULT_READY, names.CANARY_READY, names.ROUTES_READY)
_ON_ITS_WAY = frozenset({Reason.PODS_PENDING, Reason.PODS_STARTING, Reason.ROUTE_PENDING})


def plan(seen: Observed, options: Options, now: datetime) -> Plan:
    """What to do about one service."""
    own = seen.own
    if own.deleted_at is not None:
        return _plan_deletion(seen, own.deleted_at, options, now)
    if problems := _problems(own):
        return _with_events(seen, Plan(invalid_status(seen, problems, now)))
    decision = decide(seen, options, now)
    status = active_status(seen, decision, options, now)
    is_held = names.FINALIZER in own.finalizers
    todo = Plan(
        status,
        actions=actions(own.key.namespace, decision.children, seen.children) if decision.outcome else (),
        metadata=_metadata(seen),
        requeue_after=_next_look(seen, decision, status, options),
    )
    # The caches of services and of revisions differ in age: a revision of an old spec must not be made.
    verify = is_held and any(isinstance(a, Create) and a.kind == names.RECORD for a in todo.actions)
    return _with_events(seen, replace(todo, verify=verify))


def conclude(seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
    """Fold in what could not be done to the children."""
    status, trouble = todo.status, applied.first
    if status is None:
        return todo
    if any(found.kind in LEADS for found in applied.troubles):
        status = _as_before(seen.status, status)
        todo = _with_events(seen, replace(todo, status=status))
    if trouble is not None:
        blocked = Condition(names.BLOCKED, "True", trouble.shown_reason, trouble.shown_message)
    elif is_true(status.conditions, names.BLOCKED):
        blocked = Condition(names.BLOCKED, "False", Reason.RECOVERED)
    else:
        return replace(todo, status=status)
    before = find(seen.status.conditions, names.BLOCKED)
    is_new = trouble is not None and (before is None or before.message != blocked.message)
    event = (KubernetesEvent("Warning", blocked.reason, blocked.message),) if is_new else ()
    return replace(todo, status=with_condition(seen.own, status, blocked, now), events=(*todo.events, *event))


def _as_before(before: PaddleServiceStatus, now: PaddleServiceStatus) -> PaddleServiceStatus:
    """Requests have not moved: nothing is said of a canary, and the next pass decides again."""
    same = {name: getattr(before, name) for name in ("rollout", "default", "canary")}
    news = _news_of_canary(before, now)
    facts = tuple(fact for fact in now.announcements if fact not in news)
    revisions = tuple(_with_role_of(before.revision(each.name), each) for each in now.revisions)
    return now.model_copy(update={**same, "revisions": revisions, "announcements": facts})


def _with_role_of(before: RevisionStatus | None, now: RevisionStatus) -> RevisionStatus:
    if before is None:
        return now
    return now.model_copy(update={"role": before.role, "was_stable": before.was_stable})


def _news_of_canary(before: PaddleServiceStatus, now: PaddleServiceStatus) -> list[ServingAnnouncement]:
    """Facts about a canary that were not recorded before."""
    known = {(fact.fact, fact.attempt) for fact in before.announcements}
    about_canary = (fact for fact in now.announcements if fact.fact.startswith("Canary"))
    return [fact for fact in about_canary if (fact.fact, fact.attempt) not in known]


def _problems(own: Service) -> str:
    subject = Subject(own.name, own.key.namespace, own.spec, has_spec="spec" in own.obj)
    return "; ".join(str(violation) for violation in find_violations(PADDLE_SERVICE, subject))


def _metadata(seen: Observed) -> dict[str, Any] | None:
    """The finalizer, the versions of the models that are chosen now, and no words that had their effect."""
    own, chosen = seen.own, chosen_models(seen)
    patch: dict[str, Any] = {}
    annotations: dict[str, str | None] = dict.fromkeys(_settled_words(own, seen.status))
    if names.FINALIZER not in own.finalizers:
        patch["finalizers"] = [*own.finalizers, names.FINALIZER]
    if chosen != own.chosen:
        annotations[names.ANNOTATION_CHOSEN] = write_chosen(chosen) if chosen else None
    if annotations:
        patch["annotations"] = annotations
    return patch or None


def _settled_words(own: Service, status: PaddleServiceStatus) -> list[str]:
    """Annotations about a rollout that is over: the same revision, tried again, must not be bound by them."""
    if status.observed_generation < own.generation:
        return []
    rollout = status.rollout
    tried = rollout.candidate if rollout is not None and rollout.phase in OPEN else ""
    words = (names.ANNOTATION_PROMOTE, names.ANNOTATION_ABORT)
    return [word for word in words if word in own.annotations and own.annotations[word] != tried]


def _plan_deletion(seen: Observed, deleted_at: datetime, options: Options, now: datetime) -> Plan:
    """Children go with their owner; what is left to do is to publish the last fact."""
    if names.FINALIZER not in seen.own.finalizers:
        return Plan()
    left = [f for f in seen.own.finalizers if f != names.FINALIZER]
    is_over = now >= deleted_at + timedelta(seconds=options.deletion_patience)
    return Plan(deleted_status(seen, now), release={"finalizers": left}, release_anyway=is_over)


def _next_look(
    seen: Observed, decision: Decision, status: PaddleServiceStatus, options: Options
) -> float | None:
    outcome = decision.outcome
    if status.mode != decision.choice.active or _settled_words(seen.own, status):
        return 0.0
    watched = outcome is not None and outcome.rollout is not None and outcome.rollout.phase == STEPPING
    poll = options.poll_seconds if watched else None
    return earliest(outcome.recheck if outcome else None, poll, decision.kept.recheck)


def _with_events(seen: Observed, todo: Plan) -> Plan:
    status = todo.status
    return todo if status is None else replace(todo, events=(*_news(seen, status), *_troubles(seen, status)))


def _news(seen: Observed, status: PaddleServiceStatus) -> Iterator[KubernetesEvent]:
    """What happened to a canary, each once."""
    for fact in _news_of_canary(seen.status, status):
        is_bad = fact.fact == WITHDRAWN and fact.reason != Reason.SUPERSEDED
        words = (fact.revision, f"{fact.percent} %" if fact.percent else "", fact.reason, fact.message)
        message = ": ".join(word for word in words if word)
        yield KubernetesEvent("Warning" if is_bad else "Normal", fact.fact, message)


def _troubles(seen: Observed, status: PaddleServiceStatus) -> Iterator[KubernetesEvent]:
    """Each trouble once, when it begins; what is merely on its way is none."""
    for type_ in _TROUBLES:
        before, now = find(seen.status.conditions, type_), find(status.conditions, type_)
        is_trouble = now is not None and now.status == "False" and now.reason not in _ON_ITS_WAY
        is_new = before is None or now is None or (before.status, before.reason) != (now.status, now.reason)
        if now is not None and is_trouble and is_new:
            yield KubernetesEvent("Warning", now.reason, now.message)
