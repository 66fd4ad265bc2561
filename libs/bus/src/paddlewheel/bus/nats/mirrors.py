"""The teams' copies of the fact streams: mirrors in each team's account, each fed by a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paddlewheel.bus.admin.mirrors import MIRROR_FEED_GRACE_SECONDS, MirrorStatus, is_ahead, judge_mirror
from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.admin.teams import FEED_PREFIX, ORIGIN_API, Team, fed_by
from paddlewheel.bus.nats.api import Json, ask_api
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.streams import StreamSpec, matches, overlaps
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

_NANOSECONDS = 1_000_000_000
_IN_FLIGHT = 1000
"""The number of messages sent to a mirror that it has not confirmed."""
_ORIGIN = "paddlewheel.origin"
"""Key in a mirror's metadata: when the origin stream was created, and the subjects of the mirror."""

log = LibraryLogger(__name__)

Place = tuple[str, str]
"""A team and a stream."""


class Mirrors:
    """Makes the copies of the teams, and deletes the feeds of removed teams."""

    def __init__(
        self,
        connection: Connection,
        teams: Sequence[Team],
        replicas: int,
        facts: Sequence[StreamSpec] = FACTS,
    ) -> None:
        self._connection = connection
        self._teams = teams
        self._replicas = replicas
        self._facts = facts
        self._ahead: set[Place] = set()
        """The copies that were ahead of their streams at the last check."""
        self._unfed_since: dict[Place, float] = {}
        self.status: tuple[MirrorStatus, ...] = ()
        """The state of the copies at the last check."""

    async def ensure(self) -> None:
        """Make the missing mirrors of all teams. One that cannot be made does not block the others. Raises
        Retry, which names the copies that could not be made, or in which no facts arrive."""
        failed: dict[str, str] = {}
        seen: list[MirrorStatus] = []
        for spec in self._facts:
            origin = await ask_api(self._connection, f"STREAM.INFO.{spec.name}")
            if origin is None:
                continue
            await self._delete_orphaned_feeds(spec)
            for team in self._teams:
                try:
                    seen.append(await self._ensure(team, spec, origin))
                except Retry as error:
                    failed[f"{spec.name} of team {team.name}"] = error.message
        self.status = tuple(seen)
        if failed:
            reasons = "; ".join(sorted(set(failed.values())))
            raise Retry("MirrorMissing", f"no mirror {', '.join(failed)}: {reasons}")
        self._check_fed()

    def _check_fed(self) -> None:
        """Raises Retry for mirrors in which no facts have arrived for `MIRROR_FEED_GRACE_SECONDS`. A new
        mirror, or a server that has just started, may take that long."""
        now = asyncio.get_running_loop().time()
        unfed = {(each.team, each.stream): each.trouble for each in self.status if each.trouble}
        self._unfed_since = {place: self._unfed_since.get(place, now) for place in unfed}
        lasting = [
            place for place, since in self._unfed_since.items() if now >= since + MIRROR_FEED_GRACE_SECONDS
        ]
        if lasting:
            names = ", ".join(f"{stream} of team {team}" for team, stream in lasting)
            reasons = "; ".join(sorted({unfed[place] for place in lasting}))
            raise Retry("MirrorNotFed", f"mirror {names}: {reasons}")

    async def _ensure(self, team: Team, spec: StreamSpec, origin: Json) -> MirrorStatus:
        wanted = self._mirror(team, spec, origin)
        mirror = await ask_api(self._connection, f"{team.api}.STREAM.INFO.{spec.name}")
        feed = await ask_api(self._connection, f"CONSUMER.INFO.{spec.name}.{team.feed}")
        if mirror is not None and not _is_usable(mirror, wanted):
            # The origin was re-created, or the team's former namespaces overlap the new ones.
            await ask_api(self._connection, f"{team.api}.STREAM.DELETE.{spec.name}")
            mirror = None
        last = int(origin["state"]["last_seq"])
        if mirror is not None and is_ahead(mirror, last):
            # `origin` may have been read before the mirror's last message was stored.
            last = await _last(self._connection, spec.name)
        if mirror is not None and self._is_origin_restored(team, spec, mirror, last):
            await ask_api(self._connection, f"{team.api}.STREAM.DELETE.{spec.name}")
            mirror = None
        if feed is not None and mirror is None:
            # Its position is the end of the former mirror.
            await ask_api(self._connection, f"CONSUMER.DELETE.{spec.name}.{team.feed}")
            feed = None
        if feed is None:
            after = 0 if mirror is None else int(mirror["state"]["last_seq"])
            await self._create_feed(team, spec, after)
        elif not _is_alike(feed["config"], self._feed(team, spec)):
            await self._correct_feed(team, spec, feed["config"])
        await self._put_mirror(team, mirror, wanted)
        if feed is None or mirror is None:
            return MirrorStatus(team.name, spec.name, lag=last)
        return judge_mirror(team.name, spec.name, mirror, feed, last)

    def _is_origin_restored(self, team: Team, spec: StreamSpec, mirror: Json, last: int) -> bool:
        """Whether the origin was restored from an older copy. Raises Retry at the first sign."""
        place = (team.name, spec.name)
        if not is_ahead(mirror, last):
            self._ahead.discard(place)
            return False
        if place not in self._ahead:
            self._ahead.add(place)
            raise Retry(
                "MirrorAhead", "it is ahead of its stream; it is made again if the next check finds the same"
            )
        self._ahead.discard(place)
        log.error(
            "bus mirror is ahead of its stream, which was restored from an older copy:"
            " the mirror is made again, and its consumers are lost",
            stream=spec.name,
            team=team.name,
            consumers=mirror["state"].get("consumer_count"),
            last=mirror["state"]["last_seq"],
        )
        return True

    async def _create_feed(self, team: Team, spec: StreamSpec, after: int) -> None:
        start: Json = {"deliver_policy": "all"}
        if after:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        await self._put_feed(team, spec, {**self._feed(team, spec), **start}, "create")
        log.info("bus mirror has a new feed", stream=spec.name, team=team.name)

    async def _correct_feed(self, team: Team, spec: StreamSpec, found: Json) -> None:
        """Update the consumer in place, so that its position stays."""
        await self._put_feed(team, spec, {**found, **self._feed(team, spec)}, "update")
        log.info("bus mirror's feed was corrected", stream=spec.name, team=team.name)

    async def _put_feed(self, team: Team, spec: StreamSpec, config: Json, action: str) -> None:
        request = {"stream_name": spec.name, "config": config, "action": action}
        await ask_api(self._connection, f"CONSUMER.CREATE.{spec.name}.{team.feed}", request)

    async def _put_mirror(self, team: Team, found: Json | None, wanted: Json) -> None:
        name = wanted["name"]
        if found is None:
            await ask_api(self._connection, f"{team.api}.STREAM.CREATE.{name}", wanted)
        elif not _is_alike(found["config"], wanted):
            if gone := _gone(found["config"], wanted):
                await self._purge(team, name, gone)
            await ask_api(self._connection, f"{team.api}.STREAM.UPDATE.{name}", {**found["config"], **wanted})

    async def _purge(self, team: Team, stream: str, subjects: set[str]) -> None:
        """Delete the facts of these subjects from a copy whose feed no longer delivers them. Raises Retry
        while a delivered fact has not arrived in the copy, maybe of one of these subjects."""
        feed = await ask_api(self._connection, f"CONSUMER.INFO.{stream}.{team.feed}")
        mirror = await ask_api(self._connection, f"{team.api}.STREAM.INFO.{stream}")
        for subject in sorted(subjects):
            await ask_api(self._connection, f"{team.api}.STREAM.PURGE.{stream}", {"filter": subject})
        delivered = int(feed["delivered"]["stream_seq"]) if feed else 0
        if mirror is not None and int(mirror["state"]["last_seq"]) < delivered:
            raise Retry("FactsInFlight", "facts of removed namespaces may still be on their way to the copy")

    def _mirror(self, team: Team, spec: StreamSpec, origin: Json) -> Json:
        """The configuration of a mirror. Storage and limits are those of the live origin."""
        same = ("max_age", "max_msgs_per_subject", "max_msg_size", "storage")
        feed = {"name": team.feed, "deliver_subject": team.delivery(spec.name)}
        return {
            "name": spec.name,
            "retention": "limits",
            "discard": "old",
            "allow_direct": True,
            "num_replicas": self._replicas,
            "mirror": {"name": spec.name, "external": {"api": ORIGIN_API, "deliver": ""}, "consumer": feed},
            "metadata": {_ORIGIN: f"{origin['created']} {','.join(team.filters(spec.subjects))}"},
            "max_bytes": team.copy_bytes(origin["config"]["max_bytes"]),
            **{field: origin["config"][field] for field in same},
        }

    def _feed(self, team: Team, spec: StreamSpec) -> Json:
        """The configuration of a consumer that feeds a mirror, which confirms messages by flow control."""
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
            "num_replicas": self._replicas,
        }

    async def _delete_orphaned_feeds(self, spec: StreamSpec) -> None:
        """Delete the consumers that feed mirrors of removed teams."""
        answer = await ask_api(self._connection, f"CONSUMER.NAMES.{spec.name}") or {}
        known = {team.feed for team in self._teams}
        for name in answer.get("consumers") or ():
            if not name.startswith(FEED_PREFIX) or name in known:
                continue
            found = await ask_api(self._connection, f"CONSUMER.INFO.{spec.name}.{name}")
            if found and fed_by(spec.name, name, found["config"].get("deliver_subject")):
                await ask_api(self._connection, f"CONSUMER.DELETE.{spec.name}.{name}")
                log.info("bus mirror is no longer fed", stream=spec.name, consumer=name)


async def mirror_status(connection: Connection, team: Team, stream: str) -> MirrorStatus:
    """The state of a team's copy of a stream. Raises Retry or Permanent."""
    mirror = await ask_api(connection, f"{team.api}.STREAM.INFO.{stream}")
    feed = await ask_api(connection, f"CONSUMER.INFO.{stream}.{team.feed}")
    return judge_mirror(team.name, stream, mirror, feed, await _last(connection, stream))


async def _last(connection: Connection, stream: str) -> int:
    """The last sequence of an origin stream; 0 when it does not exist."""
    origin = await ask_api(connection, f"STREAM.INFO.{stream}")
    return int(origin["state"]["last_seq"]) if origin else 0


def _is_usable(mirror: Json, wanted: Json) -> bool:
    """Whether it is a copy of the same stream, maybe with more or fewer namespaces."""
    found = mirror["config"]
    return (
        _copied(found)[0] == _copied(wanted)[0]
        and _is_alike(found.get("mirror") or {}, wanted["mirror"])
        and not any(overlaps(gone, kept) for gone in _gone(found, wanted) for kept in _copied(wanted)[1])
    )


def _gone(found: Json, wanted: Json) -> set[str]:
    """Subjects of namespaces that the team no longer has."""
    kept = _copied(wanted)[1]
    return {gone for gone in _copied(found)[1] if not any(matches(pattern, gone) for pattern in kept)}


def _copied(config: Json) -> tuple[str, set[str]]:
    """When the origin of a mirror was created, and the subjects of the mirror."""
    made, _, subjects = ((config.get("metadata") or {}).get(_ORIGIN) or "").partition(" ")
    return made, set(subjects.split(","))


def _is_alike(found: Json, wanted: Json) -> bool:
    """Whether all wanted fields have their values; the server adds fields of its own."""
    return all(
        _is_alike(found.get(name) or {}, value) if isinstance(value, dict) else found.get(name) == value
        for name, value in wanted.items()
    )
