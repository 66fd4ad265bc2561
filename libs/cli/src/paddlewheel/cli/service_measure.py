"""`paddlewheel service measure`: publishes measured values of a revision as a fact on the bus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import orjson
import typer
from pydantic import TypeAdapter, ValidationError

from paddlewheel.bus import Access
from paddlewheel.bus.admin.permissions import EVALUATOR
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.on_bus import connected, open_access
from paddlewheel.cli.output import Format, print_json, print_line
from paddlewheel.cli.service_changes import Seen, earlier
from paddlewheel.cli.target import Where
from paddlewheel.contracts.base import Double
from paddlewheel.contracts.crds.paddleservice import PaddleServiceSpec
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.measurements_v1 import RevisionMeasured
from paddlewheel.contracts.objects import generation_of, key_of, uid_of
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.errors import Permanent, Retry

_NUMBER: TypeAdapter[float] = TypeAdapter(Double)
_RIGHT = f"create serviceaccounts/token {EVALUATOR} in namespace {SYSTEM_NAMESPACE}"
_BY_HAND = "set NATS_URL, NATS_TLS_DIR (ca.crt) and NATS_TOKEN_FILE (a token of an evaluator)"
_NOT_PERMITTED = "NotPermitted"


def parse_metrics(words: Sequence[str]) -> dict[str, float]:
    """Parse `accuracy=0.97 latency_ms=12`. Raises Permanent, which names the invalid part."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.rpartition("=")
        if not name:
            raise Permanent("InvalidMetric", f"{word!r}: write NAME=VALUE, as in accuracy=0.97")
        if name in found:
            raise Permanent("InvalidMetric", f"{name} is given twice: keep one value")
        found[name] = _number(name, value)
    return found


def _number(name: str, text: str) -> float:
    try:
        return _NUMBER.validate_python(text)
    except ValidationError:
        problem = (
            f"{name}: {text!r} is not a number: write a number such as 0.97, or NaN for a failed measurement"
        )
        raise Permanent("InvalidMetric", problem) from None


def measured_revision(seen: Seen, wanted: str) -> str:
    """The revision with this name or number; by default the one on trial.

    Raises:
        Permanent: there is no such revision, or the controller has not processed the spec.
    """
    if wanted:
        return earlier(seen, wanted).name
    key = key_of(seen.obj)
    if seen.status.observed_generation < generation_of(seen.obj):
        problem = "serving-controller has not processed the last change of the spec yet"
        raise Permanent(
            "NotObserved", f"{key}: {problem}: run the command again, or name the revision with --revision"
        )
    if seen.status.canary is None:
        known = ", ".join(revision.name for revision in seen.status.revisions) or "none"
        raise Permanent(
            "NothingOnTrial", f"{key}: no revision is on trial: choose one with --revision from: {known}"
        )
    return seen.status.canary.name


def measurement(seen: Seen, revision: str, metrics: dict[str, float]) -> Event:
    """Make the fact, with a new id at every call."""
    key, uid = key_of(seen.obj), uid_of(seen.obj)
    ref = ObjectRef(namespace=key.namespace, name=key.name, uid=uid)
    return make_event(
        RevisionMeasured(service=ref, revision=revision, metrics=metrics),
        id=f"{uid}/{RevisionMeasured.__name__}/{uuid4().hex}",
        source=EVALUATOR,
        namespace=key.namespace,
        uid=uid,
        time=datetime.now(UTC),
    )


async def publish(where: Where, event: Event) -> None:
    """Publish a fact, and return when it is stored.

    Raises:
        Permanent: there is no bus, or no right to use it.
        Retry: the bus does not answer, or rejects the fact.
    """
    try:
        async with open_access(where, EVALUATOR) as access:
            await _published(access, event)
    except Permanent as error:
        if "(Forbidden)" not in error.message:
            raise
        advice = f"ask for the right to {_RIGHT}, or {_BY_HAND}"
        raise Permanent("NoCredentials", f"{error.message}; {advice}") from error


async def _published(access: Access, event: Event) -> None:
    try:
        async with connected(access) as bus:
            await bus.publish(event)
    except Retry as error:
        if error.reason == _NOT_PERMITTED:
            raise Permanent(error.reason, f"{error.message}; {_BY_HAND}") from error
        raise


def print_measurement(seen: Seen, event: Event, output: Format) -> None:
    """Print the published values, and a warning for metrics without limits."""
    data, key = orjson.loads(to_json(event.data)), key_of(seen.obj)
    for metric in _without_limits(seen, data["metrics"]):
        typer.echo(f"{metric} has no effect: spec.rollout.limits.metrics has no limits for it", err=True)
    if output is Format.JSON:
        print_json({"service": str(key), "id": event.id, **{n: data[n] for n in ("revision", "metrics")}})
        return
    shown = ", ".join(f"{metric} {value}" for metric, value in data["metrics"].items())
    print_line(f"{key}: published for {data['revision']}: {shown}")


def _without_limits(seen: Seen, metrics: Iterable[str]) -> list[str]:
    rules = PaddleServiceSpec.model_validate(seen.spec).rollout
    named = rules.limits.metrics if rules is not None and rules.is_automatic else {}
    return [name for name in metrics if name not in named]
