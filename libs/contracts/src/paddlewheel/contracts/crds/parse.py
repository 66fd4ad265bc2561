"""Typed views of custom resources for controllers.

An object that the API server accepts always parses. An object that our CRD would refuse, stored while the CRD
was replaced by hand, raises `Permanent` with the name of the field. Nulls count as absent. Parts that
controllers only pass on (pod templates, node affinity, references to pods) are shared with the object, so
they must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from paddlewheel.contracts.crds.base import CrdModel
from paddlewheel.contracts.crds.kinds import Kind
from paddlewheel.contracts.crds.paddlejob import PaddleJobSpec, PaddleJobStatus
from paddlewheel.contracts.crds.paddleservice import PaddleServiceSpec, PaddleServiceStatus
from paddlewheel.contracts.crds.samplejob import SampleJobSpec, SampleJobStatus
from paddlewheel.contracts.crds.sampleset import SampleSetSpec, SampleSetStatus
from paddlewheel.contracts.crds.trigger import TriggerSpec, TriggerStatus
from paddlewheel.contracts.crds.violations import Subject
from paddlewheel.core.errors import Permanent

M = TypeVar("M", bound=CrdModel)
Path = tuple[int | str, ...]


def _reader(model: type[M], part: str) -> Callable[[Mapping[str, Any]], M]:
    """A function that parses `spec` or `status` of an object, with defaults if that is absent.

    The function raises Permanent(InvalidSpec) or Permanent(InvalidStatus).
    """
    return lambda obj: _parse(model, obj, part)


parse_paddle_job_spec = _reader(PaddleJobSpec, "spec")
parse_paddle_job_status = _reader(PaddleJobStatus, "status")
parse_sample_set_spec = _reader(SampleSetSpec, "spec")
parse_sample_set_status = _reader(SampleSetStatus, "status")
parse_sample_job_spec = _reader(SampleJobSpec, "spec")
parse_sample_job_status = _reader(SampleJobStatus, "status")
parse_paddle_service_spec = _reader(PaddleServiceSpec, "spec")
parse_paddle_service_status = _reader(PaddleServiceStatus, "status")
parse_trigger_spec = _reader(TriggerSpec, "spec")
parse_trigger_status = _reader(TriggerStatus, "status")


def parse_subject(kind: Kind, obj: Mapping[str, Any]) -> Subject:
    """The parts of an object that its kind's rules read. Raises Permanent(InvalidSpec)."""
    meta = obj.get("metadata") or {}
    spec = _parse(kind.spec, obj, "spec")
    has_spec = obj.get("spec") is not None
    return Subject(str(meta.get("name", "")), str(meta.get("namespace", "")), spec, has_spec)


def _parse(model: type[M], obj: Mapping[str, Any], part: str) -> M:
    raw = obj.get(part) or {}
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        nulls = [e["loc"] for e in error.errors(include_url=False) if e["input"] is None]
        return _parse_strictly(model, _without(raw, nulls), part)


def _parse_strictly(model: type[M], raw: Any, part: str) -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        reason = f"Invalid{part.capitalize()}"
        raise Permanent(reason, "; ".join(_sentence(part, e) for e in error.errors())) from error


def _sentence(part: str, error: Mapping[str, Any]) -> str:
    path = ".".join(str(step) for step in (part, *error["loc"]))
    return f"{path}: {error['msg']}"


def _without(value: Any, nulls: Sequence[Path]) -> Any:
    """A copy of `value` without the nulls at these places; the rest is shared."""
    if not nulls or not isinstance(value, (dict, list)):
        return value
    inner = {path[0]: [p[1:] for p in nulls if p[:1] == path[:1]] for path in nulls if path}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    kept = {
        key: _without(item, inner.get(key, ())) for key, item in items if not (item is None and key in inner)
    }
    return kept if isinstance(value, dict) else list(kept.values())
