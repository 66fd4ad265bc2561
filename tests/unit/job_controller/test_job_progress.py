"""Reports of training programs: who may send them, what they become, and the status when none comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.job_controller.builders import make_job, render
from tests.unit.job_controller.conftest import JobHarness, OpenHarness

from job_controller.config import Settings
from job_controller.core.job_status import JobStatus, render_progress
from job_controller.core.model import Observed, Options
from job_controller.core.progress_access import ProgressAccess
from job_controller.features.progress.limit import BURST, RateLimit
from job_controller.features.progress.report import BODY_LIMIT, Report, parse_report
from job_controller.features.progress.rules import seconds_until_stalled, stall_conditions
from job_controller.timing import PROGRESS_SWEEP_INTERVAL_SECONDS
from paddlewheel.bus.streams import PROGRESS
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds import JobProgress
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobStuck
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import Conflict, Permanent, Unavailable
from paddlewheel.kube.ports import PADDLE_JOBS, PODS
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.harness import Fakes
from paddlewheel.testkit.operators import OperatorReplica
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

KEY = b"k" * 32
ACCESS = ProgressAccess("http://job-controller.paddle-system.svc:8080", KEY)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPORT = {"step": 120, "total_steps": 500, "loss": 0.5, "metrics": {"lr": 0.1}, "eta_seconds": 60.0}


# Who may report


def test_a_token_is_that_of_one_job_and_one_key() -> None:
    token = ACCESS.token_of("uid-1")

    assert len(token) == 64
    assert ACCESS.accepts("uid-1", f"Bearer {token}")
    assert not ACCESS.accepts("uid-2", f"Bearer {token}")
    assert not ProgressAccess(ACCESS.url, b"j" * 32).accepts("uid-1", f"Bearer {token}")


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer \u00e4", f"Basic {ACCESS.token_of('uid-1')}"])
def test_anything_else_is_no_token(header: str) -> None:
    assert not ACCESS.accepts("uid-1", header)


def test_the_key_is_not_shown() -> None:
    assert KEY.decode() not in repr(Options(progress=ACCESS))


def progress_env(role: str, own: Mapping[str, str] | None = None, options: Options | None = None) -> Any:
    env = [{"name": name, "value": value} for name, value in (own or {}).items()]
    containers = [{"name": "main", "image": "example/train:1", "env": env}]
    spec: dict[str, Any] = {role: make_role(2, containers=containers)}
    job = make_job(**spec)
    pod = render(job, role, 1, options=options or Options(progress=ACCESS))
    found = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    return {name: value for name, value in found.items() if name.startswith("PADDLEWHEEL_PROGRESS")}


def test_workers_know_where_to_report() -> None:
    assert progress_env("worker") == {
        "PADDLEWHEEL_PROGRESS_URL": "http://job-controller.paddle-system.svc:8080/v1/progress/uid-1/0",
        "PADDLEWHEEL_PROGRESS_TOKEN": ACCESS.token_of("uid-1"),
    }


def test_others_do_not() -> None:
    assert progress_env("ps") == {}
    assert progress_env("worker", options=Options()) == {}


def test_a_user_can_turn_it_off() -> None:
    assert progress_env("worker", {"PADDLEWHEEL_PROGRESS_URL": ""}) == {"PADDLEWHEEL_PROGRESS_URL": ""}


# Settings


def test_url_and_key_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="progress_url and progress_key_file"):
        Settings(progress_url="http://x:8080")
    with pytest.raises(ValueError, match="progress_url and progress_key_file"):
        Settings(progress_key_file=tmp_path / "key")
    assert Settings().read_progress_access() is None


@pytest.mark.parametrize("url", ["x:8080", "http://x/path", "http://a b", "http://"])
def test_an_address_that_pods_cannot_use_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="progress_url"):
        Settings(progress_url=url, progress_key_file=tmp_path / "key")


def test_a_key_that_cannot_be_used_names_the_variable(tmp_path: Path) -> None:
    settings = Settings(progress_url="http://x:8080", progress_key_file=tmp_path / "key")
    with pytest.raises(Permanent, match="JOB_CONTROLLER_PROGRESS_KEY_FILE"):
        settings.read_progress_access()
    (tmp_path / "key").write_text("short\n")
    with pytest.raises(Permanent, match="has 5 bytes, give it 32"):
        settings.read_progress_access()
    (tmp_path / "key").write_bytes(KEY + b"\n")
    assert settings.read_progress_access() == ProgressAccess("http://x:8080", KEY)


# The content of a report


def test_a_report_becomes_progress_and_a_fact() -> None:
    report = parse_report(json.dumps({**REPORT, "later": "unknown"}).encode())

    assert render_progress(report.progress(NOW)) == {
        "step": 120,
        "totalSteps": 500,
        "loss": 0.5,
        "percent": "24%",
        "eta": "2026-01-01T12:01:00Z",
        "updatedAt": "2026-01-01T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("said", "percent"),
    [
        ({"step": 0, "total_steps": 3}, "0%"),
        ({"step": 2, "total_steps": 3, "epoch": 1, "total_epochs": 9}, "66%"),
        ({"step": 2, "epoch": 1, "total_epochs": 4}, "25%"),
        ({"step": 9, "total_steps": 3}, "100%"),
        ({"step": 9}, ""),
        ({"loss": 0.1}, ""),
    ],
)
def test_the_percentage(said: Mapping[str, float], percent: str) -> None:
    assert parse_report(json.dumps(said).encode()).percent == percent


@pytest.mark.parametrize("seconds", [1e300, 4e8])
def test_an_estimate_of_centuries_is_none(seconds: float) -> None:
    report = parse_report(json.dumps({"step": 1, "eta_seconds": seconds}).encode())
    assert report.progress(NOW).eta is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"{}", "give at least one of step"),
        (b'{"total_steps": 3}', "give at least one of step"),
        (b'{"step": -1}', "step"),
        (b'{"step": "1"}', "step"),
        (b'{"step": 1.5}', "step"),
        (b'{"step": 9007199254740993}', "step"),
        (b'{"step": 1, "total_steps": 0}', "total_steps"),
        (b'{"loss": NaN}', "loss"),
        (b'{"loss": 1e999}', "loss"),
        (b'{"loss": true}', "loss"),
        (b'{"step": 1, "samples_per_second": -1}', "samples_per_second"),
        (b'{"step": 1, "metrics": {"top 1": 1}}', "metrics.top 1"),
        (b'{"step": 1, "metrics": {"a": "b"}}', "metrics.a"),
        (json.dumps({"metrics": {f"m{i}": 0 for i in range(33)}}).encode(), "metrics"),
        (b"\xff\xfe", "body"),
        (b"[" * 3000, "body"),
    ],
)
def test_a_wrong_report_names_the_field(body: bytes, named: str) -> None:
    with pytest.raises(Permanent, match=rf"InvalidReport: .*{named}"):
        parse_report(body)


WORDS = st.text("a1./ \u00e4\x00", max_size=3)
NUMBERS = st.integers() | st.floats() | st.none() | WORDS
BODIES = st.fixed_dictionaries(
    {},
    optional={
        **{name: NUMBERS for name in Report.model_fields if name != "metrics"},
        "metrics": st.dictionaries(WORDS, NUMBERS, max_size=3),
    },
)


@given(body=st.binary(max_size=64) | BODIES.map(lambda body: json.dumps(body).encode()))
def test_whatever_is_posted_is_refused_or_can_be_written_and_published(body: bytes) -> None:
    try:
        report = parse_report(body)
    except Permanent:
        return
    progress = render_progress(report.progress(NOW))
    assert JobProgress.model_validate_json(json.dumps(progress, allow_nan=False)) == report.progress(NOW)
    fact = report.fact(ObjectRef(uid="u"), 0)
    assert from_json(JobProgressed, to_json(fact)) == fact


def test_a_job_may_report_often_but_not_for_ever() -> None:
    clock = ManualClock()
    limit = RateLimit(clock)

    assert [limit.admits("a") for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert limit.admits("b")


async def test_jobs_that_are_quiet_may_report_again_and_are_forgotten() -> None:
    clock = ManualClock()
    limit = RateLimit(clock)
    while limit.admits("a"):
        pass
    await clock.advance(1.0)
    assert (limit.admits("a"), limit.admits("a")) == (True, False)

    await clock.advance(PROGRESS_SWEEP_INTERVAL_SECONDS)
    assert limit.admits("b")
    assert len(limit) == 1


# No further reports

REPORTED = NOW - timedelta(seconds=100)


def left_of(
    *,
    now: datetime = NOW,
    phase: str = "Running",
    interval: float | None = None,
    running_since: datetime | None = None,
    listening_since: datetime | None = None,
    **spec: Any,
) -> float | None:
    """Seconds until a job that reported 100 s ago counts as stalled, 0 when it does."""
    progress = JobProgress(step=7, updated_at=seconds_stamp(REPORTED), interval_seconds=interval)
    since = seconds_stamp(running_since or NOW - timedelta(hours=1))
    status = JobStatus(
        phase=phase, progress=progress, conditions=(Condition("Running", "True", "", "", since),)
    )
    seen = Observed(make_job(worker=make_role(), **spec), listening_since=listening_since)
    if any(c.status == "True" for c in stall_conditions(seen, status, now)):
        return 0
    return seconds_until_stalled(seen, status, now)


@pytest.mark.parametrize(
    ("case", "left"),
    [
        ({}, 20),
        ({"now": NOW + timedelta(seconds=19)}, 1),
        ({"now": NOW + timedelta(seconds=20)}, 0),
        ({"interval": 2.0}, 20),
        ({"interval": 60.0}, 200),
        ({"progress": {"stallSeconds": 600}, "interval": 300.0}, 500),
        ({"progress": {"stallSeconds": 30}}, 0),
        ({"phase": "Starting"}, None),
        ({"phase": "Completed"}, None),
        # A report of former pods: the present ones may load for long. Or this service did not listen yet.
        ({"running_since": NOW - timedelta(seconds=10)}, None),
        ({"listening_since": NOW - timedelta(seconds=5)}, 115),
    ],
)
def test_when_a_job_counts_as_stalled(case: Mapping[str, Any], left: float | None) -> None:
    assert left_of(**case) == left


def test_a_job_that_has_never_reported_need_not() -> None:
    seen, status = Observed(make_job()), JobStatus(phase="Running")

    assert stall_conditions(seen, status, NOW) == []
    assert seconds_until_stalled(seen, status, NOW) is None


# Over the whole service


@pytest.fixture
def receiving(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "key").write_bytes(KEY)
    return {"progress_url": ACCESS.url, "progress_key_file": tmp_path / "key"}


@pytest.fixture
async def harness(open_harness: OpenHarness, receiving: dict[str, Any]) -> AsyncIterator[JobHarness]:
    async with open_harness(**receiving) as running:
        yield running


async def uid_of(harness: JobHarness, key: Key) -> str:
    return str((await harness.get(key))["metadata"]["uid"])


def posts(replica: OperatorReplica) -> list[web.RouteDef]:
    """The routes that receive reports."""
    return [route for route in replica.operator.routes if route.method == "POST"]


async def post(
    harness: JobHarness,
    uid: str,
    report: object = REPORT,
    *,
    epoch: object = 0,
    token: str | None = None,
    length: int | None = None,
) -> int:
    """The status of the answer. `epoch`: the pod's. `length`: the header of the request."""
    body = report if isinstance(report, bytes) else json.dumps(report).encode()
    stream = StreamReader(Mock(), 2**16, loop=asyncio.get_running_loop())
    stream.feed_data(body)
    stream.feed_eof()
    headers = {"Authorization": f"Bearer {ACCESS.token_of(uid) if token is None else token}"}
    if length is not None:
        headers["Content-Length"] = str(length)
    place = {"uid": uid, "epoch": str(epoch)}
    request = make_mocked_request(
        "POST", f"/v1/progress/{uid}/{epoch}", headers, match_info=place, payload=stream
    )
    (route,) = posts(harness.replica)
    answer = cast(web.Response, await route.handler(request))
    return answer.status


async def to_running(harness: JobHarness, name: str = "demo", **spec: Any) -> tuple[Key, str]:
    """With every fact of its start confirmed, so that later writes are about progress."""
    key = await harness.to_running(make_paddle_job(name, worker=make_role(), **spec))
    await harness.advance(5.0)
    await harness.settle(key)
    return key, await uid_of(harness, key)


async def progress(harness: JobHarness, key: Key) -> dict[str, Any]:
    return dict((await harness.status(key)).get("progress") or {})


def told(harness: JobHarness) -> list[JobProgressed]:
    return [e.data for e in harness.bus.events(PROGRESS.name) if isinstance(e.data, JobProgressed)]


async def test_a_report_reaches_the_status_and_the_bus(harness: JobHarness) -> None:
    key, uid = await to_running(harness)

    assert await post(harness, uid) == 204
    await harness.advance(1.0)

    assert (await progress(harness, key))["percent"] == "24%"
    (fact,) = told(harness)
    assert (fact.job and fact.job.uid, fact.step, fact.metrics, fact.eta_seconds) == (
        uid,
        120,
        {"lr": 0.1},
        60.0,
    )
    assert fact.job
    assert fact.job.resource_version == (await harness.get(key))["metadata"]["resourceVersion"]


async def test_reports_are_written_seldom_and_the_newest_counts(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    with harness.counted_writes() as writes:
        for second in range(30):
            assert await post(harness, uid, {"step": second}) == 204
            await harness.advance(1.0)

    # At 0, 10 and 20 s: the watch shows a write a moment later.
    assert 3 <= writes["patch-status", "paddlejobs"] <= 4
    assert [fact.step for fact in told(harness)] == sorted({fact.step for fact in told(harness)})
    await harness.advance(10.0)
    assert (await progress(harness, key))["step"] == 29
    assert told(harness)[-1].step == 29


async def test_a_pass_of_the_job_leaves_progress_as_it_is(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    await harness.advance(1.0)
    before = await progress(harness, key)

    await harness.end_pods()
    await harness.settle(key)

    assert (await harness.status(key))["phase"] == "Completed"
    assert before
    assert await progress(harness, key) == before


async def test_values_that_are_not_reported_any_more_vanish(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    await harness.advance(1.0)

    await post(harness, uid, {"step": 130})
    await harness.advance(11.0)

    assert set(await progress(harness, key)) == {"step", "updatedAt"}


async def test_the_last_report_is_written_after_the_end_but_none_is_accepted(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    await harness.advance(1.0)
    await post(harness, uid, {"step": 500, "total_steps": 500})
    await harness.end_pods()
    await harness.settle(key)

    await harness.advance(1.0)

    assert (await progress(harness, key))["percent"] == "100%"
    assert [fact.step for fact in told(harness)] == [120]
    assert await post(harness, uid) == 410


async def restarted(harness: JobHarness, key: Key) -> None:
    """A new epoch runs."""
    await harness.end_pods(phase="Failed", exit_code=1)
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


async def test_what_a_pod_of_a_former_epoch_says_late_is_refused(harness: JobHarness) -> None:
    key, uid = await to_running(harness, backoffLimit=1)
    await restarted(harness, key)
    (env,) = [p["spec"]["containers"][0]["env"] for p in await harness.objects(PODS)]
    assert f"/v1/progress/{uid}/1" in next(e["value"] for e in env if e["name"].endswith("_PROGRESS_URL"))
    assert await post(harness, uid, {"step": 7}, epoch=1) == 204
    await harness.advance(1.0)

    assert await post(harness, uid, {"step": 120}, epoch=0) == 410
    await harness.advance(11.0)

    assert (await progress(harness, key))["step"] == 7
    assert [(fact.step, fact.restart_epoch) for fact in told(harness)] == [(7, 1)]


async def test_a_report_that_waits_while_the_job_restarts_is_dropped(harness: JobHarness) -> None:
    key, uid = await to_running(harness, backoffLimit=1)
    assert await post(harness, uid, {"step": 120}) == 204
    await restarted(harness, key)
    await harness.advance(11.0)
    assert await progress(harness, key) == {}


async def test_a_late_report_does_not_take_the_place_of_a_newer_epochs(harness: JobHarness) -> None:
    """The cache of a replica may not show the restart yet."""
    key, uid = await to_running(harness, backoffLimit=1)
    assert await post(harness, uid, {"step": 7}, epoch=1) == 204
    assert await post(harness, uid, {"step": 120}, epoch=0) == 204
    await restarted(harness, key)
    await harness.advance(11.0)
    assert (await progress(harness, key))["step"] == 7


async def test_refusals(harness: JobHarness) -> None:
    key, uid = await to_running(harness)

    assert await post(harness, uid, token="wrong") == 403
    assert await post(harness, uid, token=ACCESS.token_of("other")) == 403
    assert await post(harness, "unknown", token="wrong") == 403
    assert await post(harness, "unknown") == 404
    assert await post(harness, uid, {"step": -1}) == 400
    assert [await post(harness, uid, epoch=epoch) for epoch in ("-1", "x", "9" * 5000)] == [400] * 3
    assert await post(harness, uid, b"x" * (BODY_LIMIT + 1)) == 413
    assert await post(harness, uid, b"{}", length=BODY_LIMIT + 1) == 413
    await harness.advance(60.0)
    assert [await post(harness, uid) for _ in range(BURST + 1)] == [204] * BURST + [429]
    await harness.delete(key)
    await harness.catch_up()
    await harness.advance(60.0)
    assert await post(harness, uid) in (404, 410)


async def test_a_job_made_anew_under_its_name_has_another_token(harness: JobHarness) -> None:
    key, old = await to_running(harness)
    await harness.delete(key)
    await harness.settle(key)
    await harness.settle(key)
    await harness.create(make_paddle_job("demo", worker=make_role()))
    await harness.settle(key)

    assert await post(harness, old) == 404
    assert await post(harness, await uid_of(harness, key), token=ACCESS.token_of(old)) == 403


async def test_a_conflict_is_tried_again(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    with harness.failing(Conflict("modified"), "patch-status", PADDLE_JOBS, times=1) as failed:
        await harness.advance(1.0)
    assert failed
    assert await progress(harness, key) == {}

    await harness.advance(1.0)

    assert (await progress(harness, key))["step"] == 120


async def test_an_api_server_that_is_away_is_not_asked_all_the_time(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    with harness.failing(Unavailable("Down"), "patch-status", PADDLE_JOBS) as failed:
        for _ in range(10):
            await post(harness, uid)
            await harness.advance(1.0)
    assert 1 <= len(failed) <= 3

    await harness.advance(10.0)

    assert (await progress(harness, key))["step"] == 120


async def test_a_bug_costs_one_report_and_not_the_service(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    with harness.failing(RuntimeError("bug"), "patch-status", PADDLE_JOBS, times=1) as failed:
        await harness.advance(1.0)
    assert failed

    await post(harness, uid, {"step": 121})
    await harness.advance(11.0)

    assert (await progress(harness, key))["step"] == 121


async def test_a_bus_that_is_away_costs_the_fact_only(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    with harness.bus_down():
        await post(harness, uid)
        await harness.advance(1.0)

    assert (await progress(harness, key))["step"] == 120
    assert told(harness) == []
    await post(harness, uid, {"step": 121})
    await harness.advance(11.0)
    assert [fact.step for fact in told(harness)] == [121]


async def test_two_replicas_write_as_seldom_as_one_and_never_go_back(
    fakes: Fakes, open_harness: OpenHarness, receiving: dict[str, Any]
) -> None:
    async with open_harness(**receiving) as one, open_harness(**receiving) as two:
        key, uid = await to_running(one)
        steps: list[int] = []
        with one.counted_writes() as writes:
            for second in range(60):
                replica = (one, two)[second % 2]
                await two.catch_up()
                assert await post(replica, uid, {"step": second}) == 204
                await one.advance(1.0)
                await two.advance(0.0)
                steps.append((await progress(one, key)).get("step", -1))

    assert steps == sorted(steps)
    assert writes["patch-status", "paddlejobs"] <= 8
    assert steps[-1] >= 48


async def test_a_stall_is_named_told_once_and_over_with_the_next_report(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    await harness.advance(1.0)
    assert "Stalled" not in {c["type"] for c in (await harness.status(key))["conditions"]}

    await harness.advance(121.0)

    status = await harness.status(key)
    assert (await harness.condition(key, "Stalled"))["status"] == "True"
    assert (status["phase"], status["reason"]) == ("Running", "NoProgress")
    assert "step 120 of 500 was reported at 2026-01-01T00:00:0" in status["message"]
    stuck = [e.data for e in harness.published if isinstance(e.data, JobStuck)]
    assert [(fact.reason, fact.message) for fact in stuck] == [("NoProgress", status["message"])]
    await harness.advance(5.0)
    with harness.counted_writes() as writes:
        await harness.advance(600.0)
    assert not writes

    await post(harness, uid, {"step": 121})
    await harness.advance(1.0)
    await harness.settle(key)
    stalled = await harness.condition(key, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("False", "Progressing")
    warned = [e for e in await harness.kubernetes_events() if e.type == "Warning"]
    assert [e.reason for e in warned] == ["NoProgress"]


async def test_the_end_of_a_stalled_job_ends_its_stall(harness: JobHarness) -> None:
    key, uid = await to_running(harness)
    await post(harness, uid)
    await harness.advance(1.0)
    await harness.advance(121.0)
    assert (await harness.condition(key, "Stalled"))["status"] == "True"

    await harness.end_pods()
    await harness.settle(key)

    assert (await harness.condition(key, "Stalled"))["status"] == "False"
    assert (await harness.status(key))["reason"] == "Completed"


async def test_without_the_settings_nothing_is_received(open_harness: OpenHarness) -> None:
    async with open_harness() as plain:
        assert posts(plain.replica) == []
