"""Changes of a PaddleService that `paddlewheel service` makes, as merge patches. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.crds.paddleservice import PaddleServiceSpec, PaddleServiceStatus
from paddlewheel.core.errors import Permanent

PROMOTE = "elasticserving.paddlepaddle.org/promote"
ABORT = "elasticserving.paddlepaddle.org/abort"
OPEN = ("Waiting", "Stepping")
"""Phases of a rollout that goes on."""
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
"""Fields of `spec.service` that belong to a revision, and their names in its record."""
_NUMBERS = ("target", "concurrencyLimit")
_ENDPOINT = ("containerImage", "tag", "port", "arg", "model")

Json = Mapping[str, Any]


def promotion(spec: Json, status: PaddleServiceStatus) -> dict[str, Any]:
    """Everything goes to the revision on trial.

    Raises:
        Permanent: nothing is on trial.
    """
    if candidate := _judged(spec, status):
        return {"metadata": {"annotations": {PROMOTE: candidate}}}
    if not spec.get("canary"):
        raise Permanent("NothingToPromote", "no canary and no rollout is under way; change spec.default")
    return {"spec": {"default": _replacing(spec.get("default"), spec["canary"]), **_NO_CANARY}}


def abortion(spec: Json, status: PaddleServiceStatus) -> dict[str, Any]:
    """Nothing goes to the revision on trial any more.

    Raises:
        Permanent: nothing is on trial.
    """
    if candidate := _judged(spec, status):
        return {"metadata": {"annotations": {ABORT: candidate}}}
    if not spec.get("canary"):
        raise Permanent("NothingToAbort", "no canary and no rollout is under way")
    return {"spec": dict(_NO_CANARY)}


_NO_CANARY = {"canary": None, "canaryTrafficPercent": None}


def _judged(spec: Json, status: PaddleServiceStatus) -> str:
    """The candidate of a rollout that the service moves by itself."""
    rollout, rules = status.rollout, PaddleServiceSpec.model_validate(spec).rollout
    is_open = rollout is not None and rollout.phase in OPEN
    return rollout.candidate if rollout and is_open and rules is not None and rules.is_automatic else ""


def restoration(spec: Json, content: Json) -> dict[str, Any]:
    """`spec.default` and what belongs to it as a revision's record has it; a canary is removed.

    Args:
        content: of the record, a ControllerRevision: image, port, model and so on.
    """
    wanted = {
        "default": _endpoint(content),
        "runtimeVersion": content.get("container"),
        "resources": content.get("resources"),
        "volumes": content.get("volumes"),
        "volumeMounts": content.get("volumeMounts"),
        "workingDir": content.get("workingDir"),
    }
    patch = {name: _replacing(spec.get(name), value) for name, value in wanted.items()}
    scaling = content.get("autoscaling") or {}
    service = {name: scaling[key] for name, key in _AUTOSCALING.items() if key in scaling}
    numbers = {name: int(service[name]) for name in _NUMBERS if name in service}
    return {"spec": {**patch, "service": {**service, **numbers}, **_NO_CANARY}}


def _endpoint(content: Json) -> dict[str, Any]:
    image = str(content.get("image", ""))
    name, _, tag = image.rpartition(":")
    is_tagged = bool(name) and "/" not in tag and "@" not in image
    parts = {"containerImage": name if is_tagged else image, "tag": tag if is_tagged else None}
    fields = {**content, **(parts if image else {})}
    return {field: fields[field] for field in _ENDPOINT if fields.get(field) is not None}


def _replacing(old: Any, new: Any) -> Any:
    """As a merge patch, which would keep what `new` lacks."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    gone = dict.fromkeys(old.keys() - new.keys())
    return {**gone, **{name: _replacing(old.get(name), value) for name, value in new.items()}}
