"""How `paddlewheel events` words a fact, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel
from typer.testing import Result

from paddlewheel.bus import Access
from paddlewheel.cli import events as module
from paddlewheel.cli import on_bus
from paddlewheel.cli.events import as_json, describe
from paddlewheel.cli.output import Format
from paddlewheel.cli.target import Target, Where
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.core.errors import Permanent
from paddlewheel.sdk import JobGated, ObjectRef, RunStarted, TriggerFired
from paddlewheel.sdk.selection import Wish
from paddlewheel.sdk.subscription import Query, query
from paddlewheel.testkit.memory_bus import MemoryBus

Command = Callable[..., Result]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_told(data: BaseModel) -> Event:
    return make_event(data, id="u1/x/0", source="job-controller", namespace="team-a", uid="u1", time=NOW)


def make_ref(name: str, uid: str = "u1") -> ObjectRef:
    return ObjectRef(namespace="team-a", name=name, uid=uid)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            JobGated(job=make_ref("resnet"), reason="SampleSetNotReady", message="waits"),
            "03:04:05 jobs.job.gated               team-a/resnet reason=SampleSetNotReady message=waits",
        ),
        (
            RunStarted(set_namespace="team-a", set_name="digits", set_uid="u1", operation="sync"),
            "03:04:05 cache.run.started            team-a/digits operation=sync",
        ),
        (
            TriggerFired(trigger=make_ref("nightly"), kind="SampleJob", created=make_ref("n-1", "u2")),
            "03:04:05 triggers.trigger.fired       team-a/nightly kind=SampleJob "
            'created={"namespace":"team-a","name":"n-1","uid":"u2"}',
        ),
    ],
)
def test_a_line_says_when_what_and_which_object(data: BaseModel, line: str) -> None:
    assert describe(make_told(data)) == line


def test_json_is_a_cloud_event() -> None:
    event = as_json(make_told(JobGated(job=make_ref("resnet"), sample_set="imagenet")))
    assert event["type"] == "paddlewheel.jobs.v1.JobGated"
    assert event["id"] == "u1/x/0"
    assert event["data"] == {
        "job": {"namespace": "team-a", "name": "resnet", "uid": "u1"},
        "sampleSet": "imagenet",
    }


@pytest.mark.parametrize(
    ("arguments", "option", "remedy"),
    [
        (["--since", "x"], "--since", '"30s", "10m"'),
        (["--job", "a/b/c"], "--job", '"namespace/name"'),
        (["--set", "a/b/c"], "--set", '"namespace/name"'),
        (["--sample-job", "a/b/c"], "--sample-job", '"namespace/name"'),
        (["--paddle-service", "a/b/c"], "--paddle-service", '"namespace/name"'),
        (["--type", "JobFaild"], "--type", "did you mean JobFailed?"),
        (["--area", "weather"], "--area", "choose one of"),
        (["--service", "x"], "--service", "job-controller"),
        (["--durable", "a.b"], "--durable", "1 to 48"),
        (["-o", "yaml"], "--output", "json"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_with_a_remedy(
    paddlewheel: Command, arguments: list[str], option: str, remedy: str
) -> None:
    ended = paddlewheel("events", *arguments)
    assert ended.exit_code == 2
    assert option in ended.stderr
    assert remedy in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        ((), "namespace=default"),
        (("-n", "team-b"), "namespace=team-b"),
        (("-A",), "all facts"),
        (("--job", "resnet"), "job=default/resnet"),
        (("--job", "resnet", "-A"), "job=*/resnet"),
        (("--job", "team-a/resnet"), "job=team-a/resnet"),
    ],
)
def test_the_namespace_is_that_of_the_context_unless_an_option_names_others(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], selection: str
) -> None:
    asked = reading_of(paddlewheel, monkeypatch, *arguments)
    assert asked.reading.selection == selection


@pytest.mark.parametrize(
    ("arguments", "selection"), [((), "all facts"), (("-n", "team-b"), "namespace=team-b")]
)
def test_a_bus_without_a_cluster_has_no_default_namespace(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], selection: str
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://bus")
    assert reading_of(paddlewheel, monkeypatch, *arguments).reading.selection == selection


def reading_of(paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Query:
    """The query that the command sends to the bus."""
    found: list[Query] = []

    async def read(_: Where, asked: Query, *__: object) -> None:
        found.append(asked)

    monkeypatch.setattr(module, "_print_all", read)
    monkeypatch.setattr(module, "while_read", lambda work: work)
    monkeypatch.setattr(Where, "target", Target("", None))
    assert paddlewheel("events", *arguments).exit_code == 0
    [asked] = found
    return asked


@pytest.mark.parametrize("durable", ["", "mine"])
@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (Wish(job="team-a/typo"), "since 1h: --job team-a/typo. Cluster: embedded cluster demo"),
        (
            Wish(namespace="default"),
            "since 1h: --namespace default. Cluster: embedded cluster demo; -A reads all namespaces",
        ),
    ],
)
async def test_a_search_without_facts_is_reported_with_what_was_searched(
    bus: MemoryBus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wish: Wish,
    expected: str,
    durable: str,
) -> None:
    @asynccontextmanager
    async def yields(*_: object, **__: object) -> AsyncIterator[MemoryBus]:
        yield bus

    monkeypatch.setattr(module, "open_access", yields)
    monkeypatch.setattr(module, "connected", yields)
    monkeypatch.setattr(Where, "target", Target("", "demo"))
    asked = query(wish, since="1h", durable=durable, follow=False)
    expected = expected.replace("since 1h", "since the last run") if durable else expected
    await module._print_all(Where(), asked, "1h", Format.JSON)
    assert capsys.readouterr() == ("", f"No facts found {expected}\n")

    namespace = wish.namespace or "team-a"
    fact = JobGated(job=ObjectRef(namespace=namespace, name="typo", uid="u1"))
    now = datetime.now(UTC)
    await bus.publish(
        make_event(fact, id="u1/x/0", source="job-controller", namespace=namespace, uid="u1", time=now)
    )
    await module._print_all(Where(), asked, "1h", Format.JSON)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("role", ["subscriber", "operator"])
async def test_a_user_without_the_rights_learns_what_to_ask_for(
    monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    @asynccontextmanager
    async def forbidden(*_: object, **__: object) -> AsyncIterator[Access]:
        raise Permanent("ToolFailed", "kubectl exited with 1: Error from server (Forbidden): secrets")
        yield Access("nats://bus")

    monkeypatch.setattr(on_bus, "bus_access", forbidden)
    monkeypatch.setattr(Where, "target", Target("", "demo"))
    expected = rf"^NoCredentials: .*\(Forbidden\): secrets; ask .* bus role {role} \(docs/tasks/access\.md#r"
    with pytest.raises(Permanent, match=expected):
        async with on_bus.open_access(Where(), role):
            pass


def test_control_characters_and_newlines_of_a_fact_are_escaped() -> None:
    message = "one\n03:04:05 forged\x1b[2J"
    said = describe(make_told(JobGated(job=make_ref("resnet"), reason="Waits", message=message)))
    assert said.endswith("message=one\\n03:04:05 forged\\x1b[2J")
