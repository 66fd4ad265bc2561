"""The demo's bad version: how its end is read from the facts, and what is reported."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml

from paddlewheel.cli.demo.canary import rolled_back
from paddlewheel.cli.demo.facts import Facts
from paddlewheel.cli.demo.model import BadVersion, Outcome
from paddlewheel.cli.demo.report import render_report
from paddlewheel.cli.repo import repo_file
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import parse_paddle_service_spec
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.serving_v1 import (
    CanaryPromoted,
    CanaryRolledBack,
    CanaryStarted,
    Side,
    Statistics,
)
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.memory_bus import MemoryBus

OURS = ObjectRef(namespace="paddle-demo", name="digits", uid="u1")
OTHER = ObjectRef(namespace="paddle-demo", name="digits", uid="u0")
STARTED = CanaryStarted(service=OURS, revision="digits-b", percent=20)
MEASURED = Statistics(stable=Side(requests=200), canary=Side(requests=48, errors=16))


async def publish(bus: MemoryBus, *contents: WireModel) -> None:
    for number, content in enumerate(contents):
        uid = content.service.uid  # type: ignore[attr-defined]
        id_ = f"{uid}/{type(content).__name__}/{number}"
        now = datetime.now(UTC)
        await bus.publish(make_event(content, id=id_, source="test", namespace="n", uid=uid, time=now))


async def test_the_end_is_that_of_this_runs_service(bus: MemoryBus, facts: Facts) -> None:
    other = CanaryRolledBack(service=OTHER, revision="digits-a", reason="TooSlow", statistics=MEASURED)
    ours = CanaryRolledBack(service=OURS, revision="digits-b", reason="TooManyErrors", statistics=MEASURED)
    await publish(bus, other, STARTED, ours)
    found = await rolled_back(facts, "u1")
    assert (found.percent, found.requests, found.errors, found.reason) == (20, 48, 16, "TooManyErrors")


async def test_a_bad_version_that_is_promoted_fails_the_demo(bus: MemoryBus, facts: Facts) -> None:
    await publish(bus, STARTED, CanaryPromoted(service=OURS, revision="digits-b"))
    with pytest.raises(Permanent, match="was promoted"):
        await rolled_back(facts, "u1")


async def test_one_that_was_not_measured_fails_the_demo(bus: MemoryBus, facts: Facts) -> None:
    unmeasured = CanaryRolledBack(service=OURS, reason="DeadlineExceeded", message="no figures")
    await publish(bus, STARTED, unmeasured)
    with pytest.raises(Permanent, match="no figures"):
        await rolled_back(facts, "u1")


def test_the_manifest_serves_what_the_service_serves_and_puts_another_on_trial() -> None:
    without, with_canary = (
        yaml.safe_load(repo_file(f"examples/digits/{name}.yaml").read_text())
        for name in ("paddleservice", "canary")
    )
    assert with_canary["spec"]["default"] == without["spec"]["default"]
    spec = parse_paddle_service_spec(with_canary)
    assert spec.rollout is not None
    assert spec.rollout.is_automatic


def test_the_report_says_why_it_was_rolled_back(capsys: pytest.CaptureFixture[str]) -> None:
    render_report(Outcome(bad_version=BadVersion(20, 48, 16, "TooManyErrors", 4.7)))
    text = capsys.readouterr().out
    assert "20 % of the requests: 16 of 48 failed; rolled back after 4.7 s: TooManyErrors" in text
