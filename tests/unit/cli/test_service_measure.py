"""`paddlewheel service measure`: what is published of which revision, and what is refused."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from rich.console import Console
from typer.testing import Result

from paddlewheel.bus import Access
from paddlewheel.cli import service, service_measure
from paddlewheel.cli.service_changes import Seen, read
from paddlewheel.cli.service_measure import measured_revision, measurement, parse_metrics, publish
from paddlewheel.cli.service_tables import service as tables
from paddlewheel.cli.target import Where
from paddlewheel.contracts.objects import status_of
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.paddleservices import make_service

Command = Callable[..., Result]
REVISIONS = [{"name": "lac-2", "number": 2}, {"name": "lac-1", "number": 1}]


def make_seen(canary: str = "lac-2", observed: int = 3, **spec: Any) -> Seen:
    """A service with two revisions."""
    obj = make_service("lac", "team-a", **spec)
    obj["metadata"] |= {"uid": "u-1", "generation": 3}
    status = {"observedGeneration": observed, "default": {"name": "lac-1"}, "revisions": REVISIONS}
    return read({**obj, "status": {**status, **({"canary": {"name": canary}} if canary else {})}})


def test_metrics_are_names_and_numbers() -> None:
    found = parse_metrics(["accuracy=0.97", "latency_ms=12", "bias=-1e-3", "a=b=1", "failed=NaN"])
    assert math.isnan(found.pop("failed"))
    assert found == {"accuracy": 0.97, "latency_ms": 12.0, "bias": -0.001, "a=b": 1.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accuracy"], "'accuracy': write NAME=VALUE, as in accuracy=0.97"),
        (["=0.97"], "'=0.97': write NAME=VALUE"),
        (["accuracy="], "accuracy: '' is not a number: write a number such as 0.97"),
        (["accuracy=high"], "accuracy: 'high' is not a number"),
        (["accuracy=0,97"], "accuracy: '0,97' is not a number"),
        (["a=1", "b=2", "a=3"], "a is given twice: keep one value"),
    ],
)
def test_what_is_no_metric_is_named_with_the_remedy(words: list[str], said: str) -> None:
    with pytest.raises(Permanent) as refused:
        parse_metrics(words)
    assert said in str(refused.value)


@pytest.mark.parametrize(("wanted", "found"), [("", "lac-2"), ("lac-1", "lac-1"), ("1", "lac-1")])
def test_the_revision_is_that_on_trial_or_the_one_that_is_named(wanted: str, found: str) -> None:
    assert measured_revision(make_seen(), wanted) == found


@pytest.mark.parametrize(
    ("seen", "wanted", "said"),
    [
        (make_seen(), "lac-9", r"no revision lac-9 is kept; kept revisions: 2 \(lac-2\), 1 \(lac-1\)"),
        (
            make_seen(canary=""),
            "",
            "no revision is on trial: choose one with --revision from: lac-2, lac-1",
        ),
        (
            make_seen(observed=2),
            "",
            "has not processed the last change of the spec yet: run the command again",
        ),
    ],
)
def test_without_a_revision_the_remedy_is_named(seen: Seen, wanted: str, said: str) -> None:
    with pytest.raises(Permanent, match=said):
        measured_revision(seen, wanted)


def test_every_measurement_is_a_fact_of_its_own_about_the_service() -> None:
    one, other = (measurement(make_seen(), "lac-2", {"accuracy": 0.97}) for _ in range(2))
    assert one.subject == "pw.evt.measurements.revision.measured.v1.team-a.u-1"
    assert one.source == "evaluator"
    assert one.id.startswith("u-1/RevisionMeasured/")
    assert one.id != other.id


def test_the_values_that_decided_are_shown_with_the_figures() -> None:
    candidate = {"requests": 60, "metrics": {"accuracy": 0.81}}
    rollout = {"candidate": "lac-2", "phase": "RolledBack", "verdict": {"candidate": candidate}}
    seen = make_seen()
    console = Console(width=200)
    with console.capture() as captured:
        for part in tables(read({**seen.obj, "status": {**status_of(seen.obj), "rollout": rollout}}), {}):
            console.print(part)
    assert "accuracy 0.81" in captured.get()


# The command


class Bus:
    """What takes the place of the cluster's bus: `refusal` is raised on publishing."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.refusal: Exception | None = None
        self.access = Access("nats://127.0.0.1:1", streams="assume")

    @asynccontextmanager
    async def open_access(self, _: str, role: str) -> AsyncIterator[Access]:
        assert role == "evaluator"
        yield self.access

    @asynccontextmanager
    async def connected(self, _: Access) -> AsyncIterator[MemoryBus]:
        if self.refusal:
            raise self.refusal
        yield self.bus


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    """The service is in the cluster, too."""
    made = Bus()

    async def found(*_: object) -> Any:
        return make_seen(rollout={"limits": {"metrics": {"accuracy": {"min": 0.9}}}}).obj

    monkeypatch.setattr(Where, "target", None)
    monkeypatch.setattr(service, "_found", found)
    monkeypatch.setattr(service_measure, "open_access", made.open_access)
    monkeypatch.setattr(service_measure, "connected", made.connected)
    return made


def test_the_command_says_what_was_stored_and_what_of_it_decides_nothing(
    paddlewheel: Command, bus: Bus
) -> None:
    done = paddlewheel("service", "measure", "team-a/lac", "accuracy=0.97", "recal=0.5")
    assert done.exit_code == 0, done.output
    assert done.stdout == "team-a/lac: published for lac-2: accuracy 0.97, recal 0.5\n"
    assert "recal has no effect: spec.rollout.limits.metrics has no limits for it" in done.stderr
    [event] = bus.bus.events("PW_MEASUREMENTS")
    told: Any = event.data
    assert (told.revision, told.metrics) == ("lac-2", {"accuracy": 0.97, "recal": 0.5})
    assert (told.service.namespace, told.service.name, told.service.uid) == ("team-a", "lac", "u-1")


def test_the_same_in_json(paddlewheel: Command, bus: Bus) -> None:
    done = paddlewheel("service", "measure", "team-a/lac", "accuracy=NaN", "-o", "json")
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    [event] = bus.bus.events("PW_MEASUREMENTS")
    assert told == {
        "service": "team-a/lac",
        "revision": "lac-2",
        "metrics": {"accuracy": "NaN"},
        "id": event.id,
    }


async def test_a_token_of_another_role_is_reported_with_the_one_to_use(bus: Bus) -> None:
    bus.refusal = Retry("NotPermitted", "subscriber may not publish to pw.evt")
    with pytest.raises(Permanent, match=r"may not publish.*set NATS_URL, .* NATS_TOKEN_FILE"):
        await publish(Where(), measurement(make_seen(), "lac-2", {"accuracy": 1.0}))


async def test_a_user_without_the_right_is_told_what_to_ask_for(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def forbidden(*_: object) -> AsyncIterator[Access]:
        raise Permanent("ToolFailed", "kubectl exited with 1: (Forbidden): tokens are forbidden")
        yield bus.access

    monkeypatch.setattr(service_measure, "open_access", forbidden)
    right = "create serviceaccounts/token evaluator in namespace paddle-system"
    with pytest.raises(Permanent, match=rf"^NoCredentials: .*ask for the right to {right}"):
        await publish(Where(), measurement(make_seen(), "lac-2", {"accuracy": 1.0}))
