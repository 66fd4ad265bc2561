"""The decision about one service: its revisions, who gets requests, and what must exist for that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus, RolloutStatus
from paddlewheel.contracts.objects import labels_of
from paddlewheel.contracts.stamps import parse_stamp
from serving_controller.domain import names
from serving_controller.domain.chosen import Publication
from serving_controller.domain.chosen import choose as choose_publications
from serving_controller.domain.engines.port import Child, Desired, Engine, RevisionState, RouteState, Wanted
from serving_controller.domain.history import Kept, Known, keep, known_revisions, record
from serving_controller.domain.mode import ENGINES, Choice, choose
from serving_controller.domain.model import Observed, Options, Service
from serving_controller.domain.revision import Revision, followed_by, follows, revision_of
from serving_controller.domain.rollout import (
    ROLLED_BACK,
    ROLLING_BACK,
    SERVING,
    STEPPING,
    WAITING,
    Outcome,
    Situation,
    advance,
    is_open,
    rejected,
)


@dataclass(frozen=True)
class Decision:
    """Everything that actions and status follow from.

    Args:
        outcome: None before there is anything to serve.
        states: of the revisions, in the active engine.
        children: that must exist; what else the service controls is deleted.
        missing: name of a model that was not published yet, "" when none is missing.
    """

    choice: Choice
    outcome: Outcome | None
    known: Mapping[str, Known]
    kept: Kept
    states: Mapping[str, RevisionState]
    route: RouteState
    routed: Mapping[str, int]
    children: tuple[Child, ...] = ()
    missing: str = ""

    def state(self, name: str) -> RevisionState:
        """Of a revision that may not exist yet."""
        return self.states.get(name, RevisionState())


_NOTHING = Kept(frozenset(), frozenset(), {})


def decide(seen: Observed, options: Options, now: datetime) -> Decision:
    """The wanted state; the same for the same situation."""
    own, choice = seen.own, choose(seen)
    chosen = chosen_models(seen)
    default, canary = (
        revision_of(own, end, chosen, options) if end else None for end in (own.spec.default, own.spec.canary)
    )
    known = known_revisions(seen, [revision for revision in (default, canary) if revision], now)
    missing = _missing(own, default, canary)
    stable = own.status.stable if own.status.stable in known else ""
    if not choice.active or (default is None and not stable):
        states = ENGINES[choice.active].revisions(seen.children, seen.pods) if choice.active else {}
        return Decision(choice, None, known, _NOTHING, states, RouteState(), {}, (), missing)
    if held := held_by_hand(own, known):
        return _decided(seen, options, now, choice, known, _Asked(held, "", stable, by_rules=False))
    asked = _Asked(default.name if default else stable, canary.name if canary else "", stable, missing)
    return _decided(seen, options, now, choice, known, asked)


def chosen_models(seen: Observed) -> dict[str, Publication]:
    """The published versions that the service serves, by the keys under which it follows them.

    A rollout by rules ends first: versions that came more often than one is judged would never be promoted.
    """
    own, published = seen.own, seen.published
    if own.spec.rollout is not None and own.spec.rollout.is_automatic and is_open(own.status):
        published = {key: version for key, version in published.items() if key not in own.chosen}
    return choose_publications(own.chosen, published, followed_by(own.spec))


@dataclass(frozen=True)
class _Asked:
    default: str
    canary: str
    stable: str
    missing: str = ""
    by_rules: bool = True


@dataclass(frozen=True)
class _Found:
    """Of the active engine; `routed` is what is recorded while the route says nothing."""

    states: Mapping[str, RevisionState]
    route: RouteState
    routed: Mapping[str, int]


def _decided(
    seen: Observed,
    options: Options,
    now: datetime,
    choice: Choice,
    known: Mapping[str, Known],
    asked: _Asked,
) -> Decision:
    base = _base(seen, options)
    found = _found_in(seen, ENGINES[choice.active], base)
    situation = _situation(seen, choice, asked, found, now)
    outcome = advance(situation)
    if choice.is_switching and not _is_settled(outcome, seen.status):
        choice = replace(choice, waits=True)
    if not asked.by_rules:
        outcome = _remembering(outcome, seen.status.rollout)
    live = (outcome.stable, *outcome.newest)
    holding = [name for name, percent in found.routed.items() if percent]
    limits = (seen.own.spec.revision_history_limit, options.drain_seconds)
    kept = keep(known, live, holding, seen.status, limits, now)
    desired = _desired(base, known, kept, outcome, found.states)
    children = _children(seen, choice, desired, known)
    return Decision(
        choice, outcome, known, kept, found.states, found.route, found.routed, children, asked.missing
    )


def _found_in(seen: Observed, engine: Engine, base: Desired) -> _Found:
    route = engine.route(base, seen.children)
    recorded = {r.name: r.traffic for r in seen.status.revisions if r.traffic}
    return _Found(engine.revisions(seen.children, seen.pods), route, route.traffic or recorded)


def held_by_hand(own: Service, known: Mapping[str, Known]) -> str:
    """The revision that an annotation holds the service to; "" for one that is not recorded."""
    name = own.annotations.get(names.ANNOTATION_SERVE, "")
    return name if name in known else ""


def _missing(own: Service, default: Revision | None, canary: Revision | None) -> str:
    """Key of the first model that was not published yet."""
    if default is None:
        return follows(own.spec.default)
    return follows(own.spec.canary) if own.spec.canary and canary is None else ""


def _base(seen: Observed, options: Options) -> Desired:
    own = seen.own
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.PADDLE_SERVICE,
        "name": own.name,
        "uid": own.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return Desired(
        name=own.name,
        namespace=own.key.namespace,
        labels=labels_of(own.obj),
        owner=owner,
        revisions=(),
        traffic={},
        stable="",
        min_scale=own.spec.autoscaling.min_scale,
        max_scale=own.spec.autoscaling.max_scale,
        options=options,
        has_gateway_api=names.ROUTE in seen.installed,
    )


def _situation(seen: Observed, choice: Choice, asked: _Asked, found: _Found, now: datetime) -> Situation:
    own, states, route = seen.own, found.states, found.route
    return Situation(
        default=asked.default,
        now=now,
        canary=asked.canary,
        percent=own.spec.canary_percent,
        rules=own.spec.rollout if asked.by_rules else None,
        stable=asked.stable,
        complete=frozenset(name for name, state in states.items() if state.complete),
        serving=frozenset(name for name, state in states.items() if state.serves),
        troubles={name: _words(state) for name, state in states.items()},
        routed=found.routed,
        can_split=route.can_split,
        cannot="" if route.can_split else route.message,
        figures=seen.figures,
        figures_trouble=seen.figures_trouble,
        measured=seen.measured,
        looks_since=seen.looks_since,
        rollout=_rollout_in(choice, own.status, now),
        promote=own.annotations.get(names.ANNOTATION_PROMOTE, ""),
        abort=own.annotations.get(names.ANNOTATION_ABORT, ""),
        silent_since=_silent_since(own.status, names.DEFAULT_READY),
        candidate_silent_since=_silent_since(own.status, names.CANARY_READY),
    )


def _rollout_in(choice: Choice, before: PaddleServiceStatus, now: datetime) -> RolloutStatus | None:
    """A rollout begins anew in another engine, which has no pods of the candidate yet."""
    is_other = before.mode and before.mode != choice.active
    return restarted(before.rollout, now) if is_other else before.rollout


def restarted(rollout: RolloutStatus | None, now: datetime) -> RolloutStatus | None:
    """As it was before its first step; one that has ended stays as it is."""
    if rollout is None or rollout.phase not in (STEPPING, SERVING):
        return rollout
    return rollout.model_copy(update={"phase": WAITING, "step": 0, "percent": 0, "since": now})


def _silent_since(before: PaddleServiceStatus, endpoint: str) -> datetime | None:
    found = find(before.conditions, endpoint)
    if found is None or found.status != "False":
        return None
    return parse_stamp(found.last_transition_time)


def _words(state: RevisionState) -> str:
    return f"{state.reason}: {state.message}".removesuffix(": ")


def _remembering(outcome: Outcome, before: RolloutStatus | None) -> Outcome:
    """What was rolled back is not forgotten while another revision is served by hand."""
    if before is None or before.phase not in (ROLLING_BACK, ROLLED_BACK) or outcome.rollout is not None:
        return outcome
    return replace(outcome, rollout=rejected(before))


def _is_settled(made: Outcome, before: PaddleServiceStatus) -> bool:
    """No requests move. Only then may the service move to another engine: nothing waits for one that might
    never be ready, and none has to follow a change that is half done."""
    is_moving = made.rollout is not None and made.rollout.phase in (STEPPING, ROLLING_BACK)
    return made.stable == before.stable and not made.happenings and not is_moving


def _desired(
    base: Desired,
    known: Mapping[str, Known],
    kept: Kept,
    outcome: Outcome,
    states: Mapping[str, RevisionState],
) -> Desired:
    """A new revision starts as large as the stable one, which it may replace at once."""
    size = max(1, states[outcome.stable].replicas) if outcome.stable in states else 1
    in_order = sorted(kept.all, key=lambda name: known[name].number)
    wanted = tuple(Wanted(known[name].revision, name in kept.running, size) for name in in_order)
    return replace(
        base,
        revisions=wanted,
        traffic=outcome.traffic,
        stable=outcome.stable,
        newest=outcome.newest,
    )


def _children(
    seen: Observed, choice: Choice, desired: Desired, known: Mapping[str, Known]
) -> tuple[Child, ...]:
    records = tuple(record(desired, known[wanted.name]) for wanted in desired.revisions)
    active, *others = choice.engines
    moved = tuple(child for other in others for child in _of_next(other, seen, desired))
    return (*records, *active.render(desired, seen.children), *moved)


def _of_next(engine: Engine, seen: Observed, desired: Desired) -> tuple[Child, ...]:
    """The engine to which the service moves has the stable revision only."""
    stable = tuple(wanted for wanted in desired.revisions if wanted.name == desired.stable)
    alone = replace(desired, revisions=stable, traffic={desired.stable: 100}, newest=())
    return engine.render(alone, seen.children)


def has_moved(seen: Observed, decision: Decision, options: Options) -> bool:
    """The engine to which the service moves serves, and the old one's objects can go."""
    if not decision.choice.is_switching or decision.outcome is None:
        return False
    engine = ENGINES[decision.choice.wanted]
    state = engine.revisions(seen.children, seen.pods).get(decision.outcome.stable, RevisionState())
    return state.complete and engine.route(_base(seen, options), seen.children).ready
