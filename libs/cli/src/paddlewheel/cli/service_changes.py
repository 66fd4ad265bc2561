"""Changes of a PaddleService as merge patches, and their expected effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic.alias_generators import to_snake

from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds import parse_paddle_service_status
from paddlewheel.contracts.crds.paddleservice import (
    AutoscalingSpec,
    PaddleServiceSpec,
    PaddleServiceStatus,
    RevisionStatus,
    RolloutStatus,
)
from paddlewheel.contracts.objects import annotations_of, generation_of, key_of, status_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent

PROMOTE = "elasticserving.paddlepaddle.org/promote"
ABORT = "elasticserving.paddlepaddle.org/abort"
SERVE = "elasticserving.paddlepaddle.org/serve"
CANDIDATE, STEPPING = "Candidate", "Stepping"
_REJECTED = ("RollingBack", "RolledBack")
"""Phases of a rollout whose candidate was rejected."""
_AUTOSCALING = {
    "autoscaler": "class",
    "metric": "metric",
    "target": "target",
    "targetUtilization": "targetUtilizationPercentage",
    "window": "window",
    "panicWindow": "panicWindowPercentage",
    "panicThreshold": "panicThresholdPercentage",
    "concurrencyLimit": "concurrencyLimit",
}
"""Fields of `spec.service` that belong to a revision, with their names in its record."""
_NUMBERS = ("target", "concurrencyLimit")
_ENDPOINT = ("containerImage", "tag", "port", "arg", "model")
_NO_CANARY = {"canary": None, "canaryTrafficPercent": None}
_NOW = datetime.max.replace(tzinfo=UTC)

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """A PaddleService as it was read."""

    obj: Json
    status: PaddleServiceStatus

    @property
    def spec(self) -> Json:
        spec: Json = self.obj["spec"]
        return spec

    @property
    def rollout(self) -> RolloutStatus:
        """The current or last rollout; an empty one when there is none."""
        return self.status.rollout or RolloutStatus()

    @property
    def is_judged(self) -> bool:
        """True when changes go through steps."""
        rules = PaddleServiceSpec.model_validate(self.spec).rollout
        return rules is not None and rules.is_automatic

    @property
    def on_trial(self) -> str:
        """The revision that is rolled out in steps now, or ""."""
        is_open = self.is_judged and self.rollout.phase not in _REJECTED
        return self.rollout.candidate if is_open else ""

    @property
    def rejected(self) -> str:
        """The revision that was rolled back, or "". It is not tried again until the spec changes."""
        return self.rollout.candidate if self.is_judged and self.rollout.phase in _REJECTED else ""

    @property
    def held(self) -> str:
        """The revision that an annotation holds the service to, or ""; the spec has no effect then."""
        name = annotations_of(self.obj).get(SERVE, "")
        return name if self.status.revision(name) else ""

    @property
    def waits_for_model(self) -> bool:
        """True when the spec follows a model without a published version."""
        progress = find(self.status.conditions, "Progressing")
        return progress is not None and progress.reason == Reason.MODEL_NOT_PUBLISHED

    @property
    def is_settled(self) -> bool:
        """True when `spec.default` is the stable revision, or has no effect."""
        if self.held or (self.spec.get("canary") and self.rollout.phase in _REJECTED):
            return True
        is_other = self.waits_for_model and not self.spec.get("canary")
        on_trial = any(revision.role == CANDIDATE for revision in self.status.revisions)
        return not (on_trial or is_other or self.status.rollout)


def read(obj: Json) -> Seen:
    """Parse an object of the API server."""
    return Seen(obj, parse_paddle_service_status(obj))


@dataclass(frozen=True)
class Change:
    """A change of a service.

    Attributes:
        patch: merge patch of the object.
        summary: a sentence about the change.
        goal: the revision that gets all requests after the change; "" when there is nothing to wait for.
    """

    patch: dict[str, Any]
    summary: str
    goal: str = ""


def earlier(seen: Seen, to: str) -> RevisionStatus:
    """The revision with a number or name; by default the previous one.

    That is the stable one while `spec.default` is another one. Otherwise it is the revision that was stable
    before.

    Raises:
        Permanent: there is no such revision, or the controller has not processed the spec.
    """
    if to:
        return _found(
            seen, [r for r in seen.status.revisions if to in (r.name, str(r.number))], f"revision {to}"
        )
    _check_current(seen)
    stable = seen.status.revision(seen.status.stable) or RevisionStatus()
    if stable.name and not seen.is_settled:
        return stable
    before = [r for r in seen.status.revisions if r.number < stable.number and r.was_stable]
    return _found(seen, before, "earlier revision that was stable")


def _found(seen: Seen, among: Sequence[RevisionStatus], wanted: str) -> RevisionStatus:
    """The revision that served last: an old revision that serves again keeps its number."""
    if among:
        return max(among, key=lambda r: (r.idle_since or _NOW, r.number))
    known = ", ".join(f"{r.number} ({r.name})" for r in seen.status.revisions) or "none"
    raise Permanent("NoSuchRevision", f"no {wanted} is kept; kept revisions: {known}")


def _check_current(seen: Seen) -> None:
    if seen.status.observed_generation < generation_of(seen.obj):
        raise Permanent(
            "NotObserved",
            f"{key_of(seen.obj)}: serving-controller has not processed the last change of the spec; run the"
            " command again, or name a revision with `rollback --to`",
        )


def _check_not_held(seen: Seen) -> None:
    if seen.held:
        key = key_of(seen.obj)
        raise Permanent(
            "HeldByHand",
            f"{seen.held} gets all requests, and the spec has no effect: end that with"
            f" `paddlewheel service release {key}`, or choose another with `rollback --to NUMBER --now`",
        )


def promotion(seen: Seen) -> Change:
    """Send all requests to the revision on trial.

    Raises:
        Permanent: no revision is on trial, or the change would have no effect.
    """
    _check_not_held(seen)
    _check_current(seen)
    if candidate := seen.on_trial:
        summary = f"{candidate} requested: it gets all requests as soon as it is ready, without further steps"
        return Change(_annotated({PROMOTE: candidate, ABORT: None}), summary, candidate)
    if seen.rejected:
        raise _rejected(seen)
    if not seen.spec.get("canary"):
        raise Permanent("NothingToPromote", "there is no canary and no rollout; change spec.default")
    if seen.waits_for_model:
        raise Permanent("NothingToPromote", "the model of the canary has no published version")
    goal = seen.status.canary.name if seen.status.canary else seen.status.stable
    patch = {"spec": {"default": _replacing(seen.spec.get("default"), seen.spec["canary"]), **_NO_CANARY}}
    return Change(patch, f"{goal} requested: it gets all requests as soon as it is ready", goal)


def abortion(seen: Seen) -> Change:
    """Send no requests to the revision on trial.

    Raises:
        Permanent: no revision is on trial, or the change would have no effect.
    """
    _check_not_held(seen)
    _check_current(seen)
    stable = seen.status.stable
    if candidate := seen.on_trial:
        summary = f"rollback of {candidate} requested"
        return Change(_annotated({ABORT: candidate, PROMOTE: None}), summary, stable)
    if not seen.spec.get("canary"):
        message = "there is no canary and no rollout; `rollback` reverts a change of spec.default"
        raise Permanent("NothingToAbort", message)
    return Change({"spec": dict(_NO_CANARY)}, "removal of the canary requested", stable)


def release(seen: Seen) -> Change:
    """Make the service follow its spec again.

    Raises:
        Permanent: it follows its spec already.
    """
    if SERVE not in annotations_of(seen.obj):
        raise Permanent("NothingToRelease", f"no annotation {SERVE} holds the service to a revision")
    return Change(_annotated({SERVE: None}), "the service follows its spec again")


def _annotated(annotations: Mapping[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": dict(annotations)}}


def _rejected(seen: Seen) -> Permanent:
    rollout = seen.rollout
    return Permanent(
        "RolledBack",
        f"{rollout.candidate} was rolled back ({rollout.reason}: {rollout.message}) and is not tried again"
        f" until the spec changes; `paddlewheel service rollback {key_of(seen.obj)} --to {rollout.candidate}"
        " --now` serves it nevertheless",
    )


def restoration(seen: Seen, wanted: RevisionStatus, content: Json, *, now: bool = False) -> Change:
    """Write an earlier revision into the spec, and remove a canary.

    Args:
        content: image, port, model and so on, from the record of the revision (a ControllerRevision).
        now: skip the steps, also for a revision that was rolled back.

    Raises:
        Permanent: the change would have no effect.
    """
    if not now:
        _check_not_held(seen)
    if not now and wanted.name == seen.rejected:
        raise _rejected(seen)
    is_stable = wanted.name == seen.status.stable
    is_held = now and (bool(seen.held) or (seen.is_judged and not is_stable))
    annotations = {PROMOTE: None, ABORT: None} | ({SERVE: wanted.name} if is_held else {})
    has_steps = seen.is_judged and not is_stable and not is_held
    summary = [_asked(seen, wanted.name, has_steps), *_held(seen, is_held), *_pinned(seen, content)]
    patch = {"spec": _restored(seen.spec, content), **_annotated(annotations)}
    return Change(patch, "; ".join(summary), wanted.name)


def _asked(seen: Seen, name: str, has_steps: bool) -> str:
    if has_steps:
        return (
            f"{name} requested: it goes through the steps of spec.rollout beside {seen.status.stable};"
            " `rollback --now` gives it all requests as soon as it is ready"
        )
    if name == seen.status.stable:
        return f"{name} requested, the stable revision: the change of the spec is reverted"
    return f"{name} requested: it gets all requests as soon as it is ready"


def _held(seen: Seen, is_held: bool) -> list[str]:
    release = f"`paddlewheel service release {key_of(seen.obj)}`"
    return [f"changes of the spec have no effect until {release}"] if is_held else []


def _pinned(seen: Seen, content: Json) -> list[str]:
    """A sentence about a model that the service no longer follows."""
    old, new = (seen.spec.get("default") or {}).get("model") or {}, content.get("model") or {}
    places = ("uri", "claim")
    if not old or any(map(old.get, places)) or not any(map(new.get, places)):
        return []
    fields = ", ".join(name for name in ("uri", "claim", "path", "version", "digest") if new.get(name))
    model = f"publications of {old.get('name')}"
    return [f"{model} are ignored now: remove {fields} from spec.default.model to follow them again"]


def _restored(spec: Json, content: Json) -> dict[str, Any]:
    """`spec.default` and the fields that belong to it, from the record of a revision."""
    wanted = {
        "default": _endpoint(content),
        "runtimeVersion": content.get("container"),
        "resources": content.get("resources"),
        "volumes": content.get("volumes"),
        "volumeMounts": content.get("volumeMounts"),
        "workingDir": content.get("workingDir"),
    }
    patch = {name: _replacing(spec.get(name), value) for name, value in wanted.items()}
    scaling = _autoscaling(spec.get("service") or {}, content.get("autoscaling") or {})
    return {**patch, **({"service": scaling} if scaling else {}), **_NO_CANARY}


def _autoscaling(old: Json, recorded: Mapping[str, str]) -> dict[str, Any]:
    """Fields that differ from the defaults; the limits of the number of pods stay."""
    usual = AutoscalingSpec()
    found = {name: recorded[key] for name, key in _AUTOSCALING.items() if key in recorded}
    own = {name: value for name, value in found.items() if value != str(getattr(usual, to_snake(name)))}
    numbers = {name: int(own[name]) for name in _NUMBERS if name in own}
    return {**dict.fromkeys(old.keys() & _AUTOSCALING.keys()), **own, **numbers}


def _endpoint(content: Json) -> dict[str, Any]:
    image = str(content.get("image", ""))
    name, _, tag = image.rpartition(":")
    is_tagged = bool(name) and "/" not in tag and "@" not in image
    parts = {"containerImage": name if is_tagged else image, "tag": tag if is_tagged else None}
    fields = {**content, **(parts if image else {})}
    return {field: fields[field] for field in _ENDPOINT if fields.get(field) is not None}


def _replacing(old: Any, new: Any) -> Any:
    """A merge patch from `old` to `new`; fields that are missing in `new` are removed."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    gone = dict.fromkeys(old.keys() - new.keys())
    return {**gone, **{name: _replacing(old.get(name), value) for name, value in new.items()}}


# The effect


def is_reached(change: Change, seen: Seen, generation: int) -> bool:
    """True when all requests go to the goal, by the last report of the gateway.

    Args:
        generation: generation of the changed spec.

    Raises:
        Permanent: the goal was rolled back.
    """
    status = seen.status
    if status.observed_generation < generation:
        return False
    if seen.rejected == change.goal and not seen.held:
        raise Permanent("RolledBack", f"{change.goal} was rolled back: {seen.rollout.message}")
    others = any(r.traffic for r in status.revisions if r.name != change.goal)
    return status.stable == change.goal and status.canary is None and not others


def share_of(change: Change, seen: Seen) -> int:
    """Percent of the requests that the goal gets, by the last report of the gateway."""
    found = seen.status.revision(change.goal)
    return found.traffic if found else 0


def progress(change: Change, seen: Seen) -> str:
    """Share of the requests of the goal, and the reason why it gets no more."""
    gets = f"{change.goal} gets {share_of(change, seen)} % of the requests"
    return f"{gets}; {explanation(seen.obj)}".removesuffix("; ")


def explanation(obj: Json) -> str:
    """Reason and message in the status of a service, or ""."""
    status = status_of(obj)
    return ": ".join(str(status[name]) for name in ("reason", "message") if status.get(name))
