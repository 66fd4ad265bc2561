"""A trigger follows only sources that its namespace is granted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs
from tests.unit.trigger_controller.conftest import TriggerHarness

from paddlewheel.contracts.crds import parse_trigger_spec
from paddlewheel.core.errors import Permanent
from paddlewheel.core.settings import load_settings
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.harness import Fakes
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.triggers import make_store_trigger, make_trigger, s3_body, s3_record
from trigger_controller.config import Settings
from trigger_controller.domain.policies.grants import Grants, find_missing_grant
from trigger_controller.metrics import Metrics, Skipped
from trigger_controller.webhook import Webhook

LOGS = {"objectStore": {"source": "logs", "bucket": "images"}}


@pytest.mark.parametrize(
    ("grants", "is_granted"),
    [
        ({}, False),
        ({"other": ("*",)}, False),
        ({"images": ()}, False),
        ({"images": ("team-b",)}, False),
        ({"images": ("team-a",)}, True),
        ({"images": ("team-b", "team-a")}, True),
        ({"images": ("*",)}, True),
    ],
)
def test_who_may_follow_a_source(grants: Grants, is_granted: bool) -> None:
    spec = parse_trigger_spec(make_store_trigger(namespace="team-a"))
    missing = find_missing_grant(spec, "team-a", grants)
    assert (missing == "") is is_granted
    assert is_granted or "triggerController.webhook.sources" in missing


def test_facts_need_no_grant() -> None:
    assert find_missing_grant(parse_trigger_spec(make_trigger()), "team-a", {}) == ""


async def test_without_a_grant_a_trigger_sees_nothing_and_says_what_to_do(harness: TriggerHarness) -> None:
    """`logs` is granted to team-a alone."""
    await harness.apply(make_store_trigger(when=LOGS))
    await harness.apply(make_store_trigger(namespace="team-a", when=LOGS))
    await harness.webhook.store("logs", s3_body(s3_record("secret.png")))
    await harness.drain_queue()
    [job] = await harness.sample_jobs()
    assert job["metadata"]["namespace"] == "team-a"
    ready = await harness.condition_of("Ready", "new-images")
    assert (ready["status"], ready["reason"]) == ("False", "SourceNotGranted")
    assert "source logs is not granted to namespace default" in ready["message"]
    status = await harness.status_of("new-images")
    assert status["events"] == 0
    assert "secret.png" not in str(status)
    assert ("Warning", "SourceNotGranted") in await harness.event_reasons()


async def test_a_trigger_that_changes_to_a_foreign_source_stops(harness: TriggerHarness) -> None:
    await harness.apply(make_store_trigger("warm", batch={"quietSeconds": 1}))
    await harness.notify("mine.png")
    await harness.change({"when": LOGS})
    await harness.webhook.store("logs", s3_body(s3_record("theirs.png")))
    await harness.advance(5)
    assert await harness.sample_jobs() == []
    assert "theirs.png" not in str(await harness.status_of())


def test_grants_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(Settings).sources == {}
    monkeypatch.setenv("TRIGGER_CONTROLLER_SOURCES", '{"images": ["team-a", "*"]}')
    assert load_settings(Settings).sources == {"images": ("team-a", "*")}
    monkeypatch.setenv("TRIGGER_CONTROLLER_SOURCES", '{"images": ["team-a"], "images": ["team-b"]}')
    with pytest.raises(Permanent, match=r"TRIGGER_CONTROLLER_SOURCES.*images: named twice"):
        load_settings(Settings)
    monkeypatch.setenv("TRIGGER_CONTROLLER_SOURCES", "[")
    with pytest.raises(Permanent, match="TRIGGER_CONTROLLER_SOURCES"):
        load_settings(Settings)
    monkeypatch.setenv("TRIGGER_CONTROLLER_SOURCES", '{"a.b": ["team-a"]}')
    with pytest.raises(Permanent, match="TRIGGER_CONTROLLER_SOURCES"):
        load_settings(Settings)


class CountingMetrics(Metrics):
    """Remembers what was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: Counter[str] = Counter()

    def skipped(self, reason: Skipped, count: int = 1) -> None:
        self.reasons[reason] += count


async def test_events_that_start_nothing_are_counted_by_reason(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = CountingMetrics()
    monkeypatch.setattr("trigger_controller.app.Metrics", lambda: metrics)
    async with TriggerHarness(fakes).running() as harness:
        await harness.apply(make_store_trigger("warm"))
        await harness.apply(make_store_trigger(when=LOGS))
        for key in ("a.png", "b.png"):
            await harness.webhook.store("logs", s3_body(s3_record(key)))
        await harness.drain_queue()
        assert metrics.reasons == {"not_granted": 2}
        await harness.change({"suspend": True})
        await harness.notify("c.png")
        assert metrics.reasons == {"not_granted": 2, "suspended": 1}


async def test_a_token_of_two_sources_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "images").write_text("one\nshared\n")
    (tmp_path / "logs").write_text("shared")
    (tmp_path / "..data").mkdir()
    webhook = Webhook(MemoryBus(), ManualClock(), Metrics(), tmp_path)

    async def post(token: str) -> tuple[int, str]:
        request = make_mocked_request(
            "POST",
            "/v1/sources/s3/images",
            headers={"Authorization": f"Bearer {token}"},
            match_info={"source": "images"},
            payload=EMPTY_PAYLOAD,
        )
        answer = await webhook.receive(request)
        return answer.status, str(answer.text)

    with capture_logs() as logs:
        assert (await post("shared"))[0] == 503
    assert "the keys images, logs have the same token" in logs[0]["error"]
    assert (await post("one"))[0] == 400, "a body is missing, and not the right to send it"
    (tmp_path / "logs").write_text("of-its-own")
    assert (await post("shared"))[0] == 400
