"""Teams' copies of the fact streams, on a double of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddlewheel.bus.admin.mirrors import MirrorStatus, judge_mirror
from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.nats import mirrors
from paddlewheel.bus.nats.errors import mapped
from paddlewheel.bus.nats.mirrors import Mirrors
from paddlewheel.core.errors import Retry

TEAM = Team("team-a")
STREAM = FACTS[0].name
_LIMITS = {
    "max_age": 1,
    "max_bytes": 1,
    "max_msgs_per_subject": -1,
    "max_msg_size": 1,
    "storage": "file",
}
_SECOND = 1_000_000_000


@dataclass
class Server:
    """Keeps what is made.

    Every stream of facts has `last` facts, every copy those up to `copied`, and its feed has sent those up to
    `delivered`.
    """

    last: int = 5
    copied: int = 5
    delivered: int = 5
    active: int = _SECOND
    error: dict[str, Any] | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    @asynccontextmanager
    async def calling(self, what: str) -> AsyncIterator[None]:
        with mapped(what):
            yield

    async def request(self, subject: str, data: bytes) -> bytes:
        self.asked.append(subject)
        self.sent.append((subject, data))
        return json.dumps(self._answer(subject, json.loads(data or b"{}"))).encode()

    def _answer(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        call = subject.removeprefix(f"{TEAM.api}.").removeprefix("$JS.API.")
        place = ("mirror " if subject.startswith(TEAM.api) else "") + call.split(".", 2)[2]
        if call.startswith("CONSUMER.NAMES"):
            feeds = [name for name in self.kept if name.startswith(place + ".")]
            return {"consumers": [name.removeprefix(place + ".") for name in feeds]}
        if ".DELETE." in call:
            self.kept.pop(place, None)
            return {}
        if ".CREATE." in call or ".UPDATE." in call:
            self.kept[place] = body.get("config", body)
            return {}
        if call.startswith("STREAM.INFO") and not place.startswith("mirror "):
            return {"created": "then", "state": {"last_seq": self.last}, "config": _LIMITS}
        if place not in self.kept:
            return {"error": {"code": 404, "err_code": 10059, "description": "not found"}}
        source = {"lag": 0, "active": self.active, **({"error": self.error} if self.error else {})}
        state = {"last_seq": self.copied, "consumer_count": 2}
        delivered = {"stream_seq": self.delivered}
        return {
            "config": self.kept[place],
            "state": state,
            "mirror": source,
            "num_pending": 3,
            "delivered": delivered,
        }

    def changed(self) -> list[str]:
        """The changes after the last call of this method."""
        asked, self.asked = self.asked, []
        return [each for each in asked if any(f".{verb}." in each for verb in ("CREATE", "UPDATE", "DELETE"))]


def make_mirrors(server: Server, replicas: int = 1, namespaces: tuple[str, ...] = ()) -> Mirrors:
    return Mirrors(server, (Team(TEAM.name, namespaces),), replicas)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "purged", "stays"),
    [
        (("a",), (), "", True),
        (("a",), ("a", "b"), "", True),
        (("a", "b"), ("a",), "b", True),
        (("a",), ("b",), "a", True),
        # Nothing names all namespaces but one.
        ((), ("a",), "", False),
    ],
)
async def test_a_copy_and_its_positions_stay_when_namespaces_change(
    before: tuple[str, ...], after: tuple[str, ...], purged: str, stays: bool
) -> None:
    server = Server()
    await make_mirrors(server, namespaces=before).ensure()
    server.changed()

    await make_mirrors(server, namespaces=after).ensure()

    purges = [json.loads(body)["filter"] for subject, body in server.sent if ".PURGE." in subject]
    assert all(subject.split(".")[-2] == purged for subject in purges)
    assert bool(purges) == bool(purged)
    assert any(".DELETE." in each for each in server.changed()) != stays
    wanted = Team(TEAM.name, after).filters(FACTS[0].subjects)
    assert server.kept[f"{STREAM}.{TEAM.feed}"]["filter_subjects"] == wanted


async def test_facts_of_a_removed_namespace_are_deleted_again_while_some_are_on_their_way() -> None:
    server = Server(copied=4)
    await make_mirrors(server, namespaces=("a", "b")).ensure()
    fewer = make_mirrors(server, namespaces=("a",))

    with pytest.raises(Retry, match="on their way"):
        await fewer.ensure()
    server.copied = 5
    server.sent.clear()
    await fewer.ensure()
    assert f"{TEAM.api}.STREAM.PURGE.{STREAM}" in [subject for subject, _ in server.sent]
    server.sent.clear()
    await fewer.ensure()
    assert not any(".PURGE." in subject for subject, _ in server.sent)


async def test_only_feeds_of_ours_are_removed() -> None:
    """A durable of others may have such a name, on a server of one's own, for example."""
    server = Server()
    await make_mirrors(server).ensure()
    server.kept[f"{STREAM}.mirror-backup"] = {"name": "mirror-backup"}
    server.kept[f"{STREAM}.mirror-east"] = {"name": "mirror-east", "deliver_subject": f"east.{STREAM}"}
    server.changed()
    await Mirrors(server, (), 1).ensure()  # type: ignore[arg-type]
    assert server.changed() == [f"$JS.API.CONSUMER.DELETE.{spec.name}.{TEAM.feed}" for spec in FACTS]


async def test_the_feed_of_a_mirror_gets_as_many_replicas_as_are_asked_for() -> None:
    server = Server()
    await make_mirrors(server).ensure()
    server.changed()
    await make_mirrors(server, replicas=3).ensure()
    changed = server.changed()
    assert f"$JS.API.CONSUMER.CREATE.{STREAM}.{TEAM.feed}" in changed
    assert not any("DELETE" in each for each in changed)
    assert server.kept[f"{STREAM}.{TEAM.feed}"]["num_replicas"] == 3
    await make_mirrors(server, replicas=3).ensure()
    assert server.changed() == []


async def test_a_mirror_that_is_ahead_of_its_restored_stream_is_made_anew_when_it_stays_so() -> None:
    server = Server()
    made = make_mirrors(server)
    await made.ensure()
    server.changed()
    server.last = 3
    with pytest.raises(Retry, match="is ahead of its stream"):
        await made.ensure()
    assert server.changed() == []
    await made.ensure()
    changed = server.changed()
    for spec in FACTS:
        assert f"{TEAM.api}.STREAM.DELETE.{spec.name}" in changed
        assert f"$JS.API.CONSUMER.DELETE.{spec.name}.{TEAM.feed}" in changed
        assert f"{TEAM.api}.STREAM.CREATE.{spec.name}" in changed
        assert server.kept[f"{spec.name}.{TEAM.feed}"]["deliver_policy"] == "all"


async def test_a_mirror_that_got_a_fact_while_it_was_looked_at_is_not_ahead() -> None:
    server = Server()
    made = make_mirrors(server)
    await made.ensure()
    server.changed()
    request = server.request

    async def growing(subject: str, data: bytes) -> bytes:
        answer = await request(subject, data)
        if subject.startswith("$JS.API.STREAM.INFO"):
            # Published between the questions about the stream and about its copy.
            server.last += 1
            server.copied = server.last
        return answer

    server.request = growing  # type: ignore[method-assign]
    for _ in range(3):
        await made.ensure()
    assert server.changed() == []


async def test_a_mirror_that_is_not_fed_for_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    made = make_mirrors(server)
    await made.ensure()
    server.active = -1
    await made.ensure()
    assert made.status[0] == MirrorStatus(
        "team-a", STREAM, 3, "no facts arrive in it; the log of the NATS server contains the reason"
    )
    monkeypatch.setattr(mirrors, "MIRROR_FEED_GRACE_SECONDS", 0.0)
    with pytest.raises(Retry, match=f"mirror {STREAM} of team team-a.*no facts arrive in it"):
        await made.ensure()
    server.active = _SECOND
    await made.ensure()
    assert not any(each.trouble for each in made.status)


@pytest.mark.parametrize(
    ("source", "trouble"),
    [
        ({"active": _SECOND}, ""),
        ({"active": -1}, "no facts arrive"),
        ({"active": 31 * _SECOND}, "no facts arrive"),
        ({"active": _SECOND, "error": {"description": "no such consumer"}}, "no such consumer"),
    ],
)
def test_what_the_server_says_of_a_mirror(source: dict[str, Any], trouble: str) -> None:
    mirror = {"state": {"last_seq": 1}, "mirror": source}
    found = judge_mirror("a", STREAM, mirror, {"num_pending": 7}, 8)
    assert found.lag == 7
    assert trouble in found.trouble
    assert bool(found.trouble) == bool(trouble)


def test_a_mirror_that_was_just_made_lacks_nothing_of_an_empty_stream() -> None:
    mirror = {"state": {"last_seq": 0}, "mirror": {"active": -1}}
    assert judge_mirror("a", STREAM, mirror, {"num_pending": 0}, 0) == MirrorStatus("a", STREAM, 0)


def test_a_mirror_that_does_not_exist_lacks_everything() -> None:
    found = judge_mirror("a", STREAM, None, None, 8)
    assert (found.lag, "does not exist" in found.trouble) == (8, True)


@pytest.mark.parametrize(
    ("own", "stream", "copy"), [(0, 9, 9), (4, 9, 4), (9, 4, 4), (4, -1, 4), (0, -1, -1)]
)
def test_a_copy_is_as_large_as_its_team_allows(own: int, stream: int, copy: int) -> None:
    assert Team("vision", (), own).copy_bytes(stream) == copy
