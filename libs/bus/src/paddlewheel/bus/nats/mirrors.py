"""The fact streams as each team of subscribers has them: mirrors in its account, fed by a consumer each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nats.js.errors import APIError

from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.admin.teams import FEED_PREFIX, ORIGIN_API, Team
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import from_server
from paddlewheel.bus.streams import StreamSpec
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

_API = "$JS.API"
_NANOSECONDS = 1_000_000_000
_MISSING = 404
_IN_FLIGHT = 1000
"""Messages on their way into a mirror that it has not confirmed."""
_OF = "paddlewheel.origin"
"""Key in a mirror's metadata: of which stream, by the time it was made, and what of it."""

log = LibraryLogger(__name__)

Json = dict[str, Any]


class Mirrors:
    """Makes what the teams have, and removes the feeds of those that are gone."""

    def __init__(self, connection: Connection, teams: Sequence[Team], replicas: int) -> None:
        self._connection = connection
        self._teams = teams
        self._replicas = replicas

    async def ensure(self) -> None:
        """Every team has a mirror of every fact stream; one that cannot be made holds up no other.

        Raises Retry, which names those that could not be made.
        """
        failed: dict[str, str] = {}
        for spec in FACTS:
            origin = await self._ask(f"{_API}.STREAM.INFO.{spec.name}")
            if origin is None:
                continue
            await self._drop_strangers(spec)
            for team in self._teams:
                try:
                    await self._ensure(team, spec, origin)
                except Retry as error:
                    failed[f"{spec.name} of team {team.name}"] = error.message
        if failed:
            reasons = "; ".join(sorted(set(failed.values())))
            raise Retry("MirrorMissing", f"no mirror {', '.join(failed)}: {reasons}")

    async def _ensure(self, team: Team, spec: StreamSpec, origin: Json) -> None:
        wanted = self._mirror(team, spec, origin)
        mirror = await self._ask(f"{team.api}.STREAM.INFO.{spec.name}")
        feed = await self._ask(f"{_API}.CONSUMER.INFO.{spec.name}.{team.feed}")
        if mirror is not None and not _is_of(mirror, wanted):
            # Of a stream that was lost, or of other namespaces: its sequence numbers mean something else.
            await self._ask(f"{team.api}.STREAM.DELETE.{spec.name}")
            mirror = None
        if feed is not None and (mirror is None or not _is_alike(feed["config"], _feed(team, spec))):
            # Its position is that of the former mirror.
            await self._ask(f"{_API}.CONSUMER.DELETE.{spec.name}.{team.feed}")
            feed = None
        if feed is None:
            after = 0 if mirror is None else int(mirror["state"]["last_seq"])
            await self._create_feed(team, spec, after)
        await self._put_mirror(team, mirror, wanted)

    async def _create_feed(self, team: Team, spec: StreamSpec, after: int) -> None:
        start: Json = {"deliver_policy": "all"}
        if after:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        config = {**_feed(team, spec), **start, "num_replicas": self._replicas}
        request = {"stream_name": spec.name, "config": config, "action": "create"}
        await self._ask(f"{_API}.CONSUMER.CREATE.{spec.name}.{team.feed}", request)
        log.info("bus mirror is fed anew", stream=spec.name, team=team.name)

    async def _put_mirror(self, team: Team, found: Json | None, wanted: Json) -> None:
        if found is None:
            await self._ask(f"{team.api}.STREAM.CREATE.{wanted['name']}", wanted)
        elif not _is_alike(found["config"], wanted):
            config = {**found["config"], **wanted, "metadata": found["config"]["metadata"]}
            await self._ask(f"{team.api}.STREAM.UPDATE.{wanted['name']}", config)

    def _mirror(self, team: Team, spec: StreamSpec, origin: Json) -> Json:
        """With the limits of the live origin, which an operator may have raised."""
        limits = ("max_age", "max_bytes", "max_msgs_per_subject", "max_msg_size")
        feed = {"name": team.feed, "deliver_subject": team.delivery(spec.name)}
        return {
            "name": spec.name,
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "allow_direct": True,
            "num_replicas": self._replicas,
            "mirror": {"name": spec.name, "external": {"api": ORIGIN_API, "deliver": ""}, "consumer": feed},
            "metadata": {_OF: f"{origin['created']} {','.join(team.filters(spec.subjects))}"},
            **{limit: origin["config"][limit] for limit in limits},
        }

    async def _drop_strangers(self, spec: StreamSpec) -> None:
        answer = await self._ask(f"{_API}.CONSUMER.NAMES.{spec.name}") or {}
        known = {team.feed for team in self._teams}
        for name in answer.get("consumers") or ():
            if name.startswith(FEED_PREFIX) and name not in known:
                await self._ask(f"{_API}.CONSUMER.DELETE.{spec.name}.{name}")
                log.info("bus mirror is no longer fed", stream=spec.name, consumer=name)

    async def _ask(self, subject: str, body: Json | None = None) -> Json | None:
        """The answer of JetStream's API, None for what does not exist. Raises Retry or Permanent."""
        data = b"" if body is None else json.dumps(body).encode()
        answer: Json = json.loads(await self._connection.request(subject, data))
        if error := answer.get("error"):
            if error["code"] == _MISSING:
                return None
            raise from_server(subject, APIError(error["code"], error["description"], error["err_code"]))
        return answer


def _feed(team: Team, spec: StreamSpec) -> Json:
    """As the server asks for it of a consumer that feeds a mirror: confirmed by answers to flow control."""
    return {
        "name": team.feed,
        "durable_name": team.feed,
        "deliver_subject": team.delivery(spec.name),
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": _NANOSECONDS,
        "max_ack_pending": _IN_FLIGHT,
        "replay_policy": "instant",
        "filter_subjects": team.filters(spec.subjects),
    }


def _is_of(mirror: Json, wanted: Json) -> bool:
    """It copies what it is to copy."""
    found = mirror["config"]
    of = (found.get("metadata") or {}).get(_OF)
    return of == wanted["metadata"][_OF] and _is_alike(found.get("mirror") or {}, wanted["mirror"])


def _is_alike(found: Json, wanted: Json) -> bool:
    """Field by field; the server adds some of its own."""
    return all(
        name == "metadata"
        or (_is_alike(found.get(name) or {}, value) if isinstance(value, dict) else found.get(name) == value)
        for name, value in wanted.items()
    )
