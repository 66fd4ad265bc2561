"""Replaces a stream of an earlier release without a loss, where the server cannot change it in place.

The server copies what is unread to a stream beside it, and back once the new stream exists. Each step begins
with what the server has, so an installer that ends midway continues. Until the new stream exists nothing is
stored on its subjects, and publishers try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.mirrors import ask
from paddlewheel.bus.streams import DECLARED_AS, StreamSpec, aside
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

_API = "$JS.API"
_NO_LIMIT = -1

log = LibraryLogger(__name__)

Json = dict[str, Any]


async def put_aside(connection: Connection, spec: StreamSpec, durables: Sequence[str]) -> None:
    """Copy what is unread in a stream of an earlier release, and delete that stream.

    Args:
        durables: consumers of the stream. What all of them have acknowledged is not copied.

    Raises:
        Retry: the server has not copied everything yet.
    """
    old = await _stream(connection, spec.name)
    if old is None or not _is_to_be_moved(old["config"], spec):
        return
    if old["config"]["subjects"] == list(spec.subjects):
        log.warning("bus stream is made again with what is unread in it", stream=spec.name)
        # Without subjects of its own it would be a stream of its name.
        closed = {"subjects": [f"pw.retired.{spec.name}"], "max_bytes": _NO_LIMIT}
        await ask(connection, f"{_API}.STREAM.UPDATE.{spec.name}", {**old["config"], **closed})
        old = await _stream(connection, spec.name) or old
    first, last = await _first_unread(connection, spec, durables), int(old["state"]["last_seq"])
    if old["state"]["messages"] and first <= last:
        await _copy(connection, spec, old, first)
    await ask(connection, f"{_API}.STREAM.DELETE.{spec.name}")


async def bring_back(connection: Connection, spec: StreamSpec) -> None:
    """Copy what was put aside into the new stream. While that is full, the server waits."""
    copy, new = await _stream(connection, aside(spec)), await _stream(connection, spec.name)
    if new is None or (copy is None and not new["config"].get("sources")):
        return
    if copy is not None and not new["config"].get("sources"):
        await _set_sources(connection, new, [{"name": aside(spec)}])
    elif copy is None or _has_all(new, copy):
        if copy is not None:
            await ask(connection, f"{_API}.STREAM.DELETE.{aside(spec)}")
        await _set_sources(connection, new, [])
        log.info("bus stream has everything that was unread", stream=spec.name)


def _is_to_be_moved(config: Json, spec: StreamSpec) -> bool:
    """It is of an earlier declaration, with another retention."""
    declared = (config.get("metadata") or {}).get(DECLARED_AS, "0")
    return config["retention"] != spec.retention and int(declared) < spec.declaration


async def _first_unread(connection: Connection, spec: StreamSpec, durables: Sequence[str]) -> int:
    found = [await ask(connection, f"{_API}.CONSUMER.INFO.{spec.name}.{name}") for name in durables]
    return min((int(each["ack_floor"]["stream_seq"]) if each else 0 for each in found), default=0) + 1


async def _copy(connection: Connection, spec: StreamSpec, old: Json, first: int) -> None:
    """Raises Retry until everything is copied. Then the copy has no source, for the new stream has the name
    of the old one."""
    copy = await _stream(connection, aside(spec))
    if copy is None:
        source = {"name": spec.name, "opt_start_seq": first}
        fields = {"storage": spec.storage, "num_replicas": old["config"]["num_replicas"]}
        wanted = {"name": aside(spec), "retention": "limits", "sources": [source], **fields}
        copy = await ask(connection, f"{_API}.STREAM.CREATE.{aside(spec)}", wanted) or {}
    if not copy["config"].get("sources"):
        return
    if not _has_all(copy, old):
        raise Retry("StreamMoving", f"{spec.name}: the server copies what is unread in it")
    await _set_sources(connection, copy, [])


def _has_all(to: Json, of: Json) -> bool:
    """The server counts what it has stored of a source."""
    return any(int(source.get("seq") or 0) >= of["state"]["last_seq"] for source in to.get("sources") or ())


async def _set_sources(connection: Connection, stream: Json, sources: list[Json]) -> None:
    config = {**stream["config"], "sources": sources}
    await ask(connection, f"{_API}.STREAM.UPDATE.{config['name']}", config)


async def _stream(connection: Connection, name: str) -> Json | None:
    return await ask(connection, f"{_API}.STREAM.INFO.{name}")
