"""The loop over a bus in memory, and what `events` refuses before it begins."""

from __future__ import annotations

import subprocess
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import paddlewheel
from paddlewheel.bus.streams import JOBS, STREAMS
from paddlewheel.contracts import envelope
from paddlewheel.contracts.events import EVENTS, make_event
from paddlewheel.core.errors import Retry
from paddlewheel.devcluster.certs import Authority
from paddlewheel.sdk import (
    InvalidArgument,
    JobDeleted,
    JobFailed,
    JobGated,
    JobSucceeded,
    ObjectRef,
)
from paddlewheel.sdk import subscription as sdk
from paddlewheel.sdk.access import resolve_access
from paddlewheel.sdk.selection import Wish
from paddlewheel.sdk.subscription import query, read
from paddlewheel.testkit.memory_bus import MemoryBus


def make_fact(data: BaseModel, id_: str, uid: str = "u1") -> envelope.Event:
    now = datetime.now(UTC)
    return make_event(data, id=id_, source="test", namespace="team-a", uid=uid, time=now)


def make_job(name: str = "resnet", uid: str = "u1") -> ObjectRef:
    return ObjectRef(namespace="team-a", name=name, uid=uid)


async def ids(bus: MemoryBus, asked: sdk.Query) -> list[str]:
    async with aclosing(read(bus, asked)) as events:
        return [event.id async for event in events]


async def test_facts_are_typed_and_say_which_object_they_are_about() -> None:
    bus = MemoryBus()
    await bus.publish(make_fact(JobGated(job=make_job(), reason="SampleSetNotReady"), "1"))
    await bus.publish(make_fact(JobSucceeded(job=make_job(), seconds=15.0), "2"))
    said = []
    async with aclosing(read(bus, query(Wish(job="team-a/resnet"), follow=False))) as events:
        async for event in events:
            match event.data:
                case JobGated(reason=reason):
                    said.append(f"{event.object.name} waits: {reason}")
                case JobSucceeded(seconds=seconds):
                    said.append(f"{event.object.name} took {seconds}")
    assert said == ["resnet waits: SampleSetNotReady", "resnet took 15.0"]


def test_every_fact_of_the_contracts_can_be_imported_from_the_sdk() -> None:
    ours = {name: model for name, model in EVENTS.items() if not name.startswith("paddlewheel.objectstore.")}
    for name, model in ours.items():
        assert getattr(paddlewheel.sdk, name.rpartition(".")[2]) is model


async def test_objects_that_followed_each_other_under_one_name_are_told_apart_by_uid() -> None:
    bus = MemoryBus()
    await bus.publish(make_fact(JobFailed(job=make_job()), "u1/failed"))
    await bus.publish(make_fact(JobDeleted(job=make_job()), "u1/deleted"))
    await bus.publish(make_fact(JobGated(job=make_job(uid="u2")), "u2/gated", uid="u2"))
    await bus.publish(make_fact(JobGated(job=make_job("other", "u3")), "u3/gated", uid="u3"))
    async with aclosing(read(bus, query(Wish(job="team-a/resnet"), follow=False))) as events:
        assert [(e.object.uid, e.id) async for e in events] == [
            ("u1", "u1/failed"), ("u1", "u1/deleted"), ("u2", "u2/gated"),
        ]  # fmt: skip


async def test_an_event_that_was_stored_twice_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "_REMEMBERED", 3)
    bus = MemoryBus()
    stream = bus._streams[JOBS.name]
    for id_ in ("1", "1", "2", "3", "1", "4", "5", "1"):
        stream._ids.clear()
        await bus.publish(make_fact(JobGated(job=make_job()), id_))
    assert await ids(bus, query(Wish(), follow=False)) == ["1", "2", "3", "4", "5", "1"]


def test_the_docstring_says_how_far_back_repeats_are_recognized() -> None:
    assert f"{sdk._REMEMBERED:,} other events" in (paddlewheel.events.__doc__ or "")


async def test_a_durable_name_is_apart_from_services_names_and_resumes() -> None:
    bus = MemoryBus()
    asked = query(Wish(), since="all", durable="job-controller")
    assert asked.reading.durable == "sub-job-controller"
    for id_ in ("1", "2", "3"):
        await bus.publish(make_fact(JobGated(job=make_job()), id_))
    async with aclosing(read(bus, asked)) as events:
        assert [(await anext(events)).id, (await anext(events)).id] == ["1", "2"]
    async with aclosing(read(bus, asked)) as events:
        again = await anext(events)
        assert (again.id, again.attempt) == ("2", 2)


async def test_events_of_other_objects_do_not_hold_a_durable_up() -> None:
    bus = MemoryBus()
    for number in range(5):
        await bus.publish(make_fact(JobGated(job=make_job("other")), f"other/{number}"))
    await bus.publish(make_fact(JobGated(job=make_job()), "ours"))
    asked = query(Wish(job="team-a/resnet"), follow=False, durable="me")
    assert await ids(bus, asked) == ["ours"]
    assert await ids(bus, asked) == []


async def test_a_bus_that_is_away_is_waited_for_only_as_long_as_asked() -> None:
    bus = MemoryBus()
    bus.down = True
    with pytest.raises(Retry, match="BusUnreachable"):
        await ids(bus, query(Wish(), follow=False, open_within=0.0))


@pytest.mark.parametrize("durable", ["a.b", "a b", "*", "x" * 49, "ä"])
def test_a_name_no_server_takes_is_refused(durable: str) -> None:
    with pytest.raises(InvalidArgument, match=r"durable: .*A-Z a-z 0-9"):
        query(Wish(), durable=durable)


def test_bad_arguments_are_refused_before_the_loop() -> None:
    with pytest.raises(ValueError, match="job: "):
        paddlewheel.events(job="resnet", url="nats://x")


def test_connection_settings_come_from_the_environment_unless_passed(tmp_path: Path) -> None:
    Authority(tmp_path, "test")
    (tmp_path / "me.creds").write_text("")
    env = {"NATS_URL": "nats://a:1", "NATS_TLS_DIR": str(tmp_path), "NATS_CREDS": str(tmp_path / "me.creds")}
    found = resolve_access(environment=env)
    assert (found.url, found.tls_dir, found.creds_file) == tuple(env.values())
    assert found.streams == "assume"
    assert resolve_access("nats://b:2", environment=env).url == "nats://b:2"


def test_a_token_is_shown_over_tls_only(tmp_path: Path) -> None:
    Authority(tmp_path, "test")
    (tmp_path / "token").write_text("a.b.c")
    env = {"NATS_URL": "tls://a:1", "NATS_TOKEN_FILE": str(tmp_path / "token")}

    with pytest.raises(InvalidArgument, match="NATS_TLS_DIR: a token is sent over TLS only"):
        resolve_access(environment=env)
    with pytest.raises(InvalidArgument, match=r"NATS_TOKEN_FILE: there is no file .*paddlewheel-bus"):
        resolve_access(environment={**env, "NATS_TOKEN_FILE": "/nowhere"})
    found = resolve_access(environment={**env, "NATS_TLS_DIR": str(tmp_path)})
    assert (found.token_file, found.role) == (env["NATS_TOKEN_FILE"], "subscriber")


def test_a_token_is_shown_as_a_member_of_the_team_that_is_named(tmp_path: Path) -> None:
    Authority(tmp_path, "test")
    (tmp_path / "token").write_text("a.b.c")
    env = {"NATS_URL": "tls://a:1", "NATS_TLS_DIR": str(tmp_path), "NATS_TEAM": "vision"}
    shown = {**env, "NATS_TOKEN_FILE": str(tmp_path / "token")}

    found = resolve_access(environment=shown)

    assert (found.role, found.inbox_prefix) == ("vision", "_INBOX_subscriber")
    assert resolve_access(environment=shown, role="operator").role == "operator"
    assert resolve_access(environment={"NATS_URL": "nats://a:1", "NATS_TEAM": "vision"}).role == "subscriber"


def test_an_account_that_watches_namespaces_connects_with_their_names(tmp_path: Path) -> None:
    Authority(tmp_path, "test")
    (tmp_path / "token").write_text("a.b.c")
    env = {"NATS_URL": "tls://a:1", "NATS_TLS_DIR": str(tmp_path), "NATS_TOKEN_FILE": str(tmp_path / "token")}

    found = resolve_access(environment={**env, "NATS_NAMESPACES": "team-a, team-b"})

    assert (found.role, found.namespaces) == ("subscriber.team-a.team-b", ("team-a", "team-b"))
    assert resolve_access(environment={**env, "NATS_NAMESPACES": "team-a"}, role="operator").namespaces == ()
    many = ",".join(f"team-{number}" for number in range(17))
    with pytest.raises(InvalidArgument, match="NATS_NAMESPACES: 17 namespaces are named; name 16 at most"):
        resolve_access(environment={**env, "NATS_NAMESPACES": many})
    with pytest.raises(InvalidArgument, match="NATS_NAMESPACES: NATS_TEAM is set, too"):
        resolve_access(environment={**env, "NATS_NAMESPACES": "team-a", "NATS_TEAM": "vision"})
    with pytest.raises(InvalidArgument, match=r"NATS_NAMESPACES: 'team\.a' is not the name of a namespace"):
        resolve_access(environment={**env, "NATS_NAMESPACES": "team.a"})


@pytest.mark.parametrize("given", [{"since": "1h"}, {"durable": "mine"}, {"follow": False}])
def test_an_account_that_watches_namespaces_asks_for_nothing_stored(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_NAMESPACES", "team-a")
    [name] = given
    with pytest.raises(InvalidArgument, match=f"{name}: NATS_NAMESPACES gives live facts only; omit {name}"):
        paddlewheel.events(url="nats://a:1", **given)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "url: .*NATS_URL"),
        ({"url": "nats://a:1", "tls_dir": "/nowhere"}, "tls_dir: /nowhere/ca.crt: .*ConfigMap bus-ca"),
        ({"url": "nats://a:1", "creds_file": "/nowhere"}, "creds_file: there is no file /nowhere"),
    ],
)
def test_missing_connection_files_are_rejected(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        resolve_access(**arguments, environment={})


def test_connection_files_of_the_environment_are_rejected_by_the_name_of_their_variable(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(InvalidArgument, match=f"^NATS_TLS_DIR: {tmp_path}/ca.crt: .*no certificate"):
        resolve_access("nats://a:1", environment={"NATS_TLS_DIR": str(tmp_path)})
    with pytest.raises(InvalidArgument, match=r"^NATS_CREDS: there is no file /nowhere"):
        resolve_access("nats://a:1", environment={"NATS_CREDS": "/nowhere"})


async def test_a_durable_of_another_selection_is_refused_by_name_with_what_it_reads() -> None:
    bus = MemoryBus()
    await bus.publish(make_fact(JobGated(job=make_job()), "1"))
    assert await ids(bus, query(Wish(types=JobFailed), durable="me", follow=False)) == []
    with pytest.raises(
        InvalidArgument, match="durable: 'me' was created to read types=JobFailed, not all facts"
    ):
        await ids(bus, query(Wish(), durable="me", follow=False))
    assert await ids(bus, query(Wish(types=["JobFailed"]), durable="me", follow=False)) == []


def test_the_sdk_leaves_its_host_as_it_was() -> None:
    """In a process of its own: what the host has configured and how it was imported stay."""
    program = (
        "import importlib.util, logging, structlog, paddlewheel\n"
        "paddlewheel.events(job='a/b', url='nats://127.0.0.1:1')\n"
        "assert not structlog.is_configured()\n"
        "assert not logging.getLogger().handlers\n"
        "assert paddlewheel.__spec__.has_location\n"
        "assert importlib.util.find_spec('paddlewheel').origin == paddlewheel.__file__\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_help_names_every_stream_of_facts_and_its_context() -> None:
    facts = [stream for stream in STREAMS if stream.subjects[0].startswith("pw.evt.")]
    assert facts
    text = str(paddlewheel.events.__doc__)
    contexts = text.partition("context: contexts of the facts:")[2].partition("types:")[0]
    for stream in facts:
        assert stream.name in text
        assert stream.subjects[0].split(".")[2] in contexts
