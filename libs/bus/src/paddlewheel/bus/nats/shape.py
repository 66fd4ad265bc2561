"""Changes one stream on the server to its declaration, as far as a running stream can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from nats.js import JetStreamContext
from nats.js.api import RePublish, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError

from paddlewheel.bus.admin.durability import StreamFacts
from paddlewheel.bus.nats.errors import (
    NO_ROOM,
    NO_STORAGE,
    STORAGE_FIX,
    STREAM_NAME_IN_USE,
    UNCHANGEABLE,
)
from paddlewheel.bus.streams import DECLARED_AS, Drift, StreamSpec, find_drift, live_subject
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

_DECLARATION, _LIVE, _REPLICAS = "declaration", "live", "num_replicas"
_OURS = (_DECLARATION, _LIVE)
"""Fields of a declaration that are no fields of the server's configuration."""

log = LibraryLogger(__name__)


async def ensure(js: JetStreamContext, spec: StreamSpec) -> StreamFacts:
    """Create or correct a stream; returns its state. Raises Retry or nats-py's errors."""
    try:
        info = await js.stream_info(spec.name)
    except NotFoundError:
        info = await _create(js, spec)
    return await _correct(js, spec, info)


def facts_of(spec: StreamSpec, info: StreamInfo) -> StreamFacts:
    """Compare a live stream with its declaration. One that a newer release declared has no drift."""
    replicas = info.config.num_replicas or 1
    if _is_newer(info.config, spec):
        return StreamFacts(replicas, Drift({}, {}))
    found = {
        **_plain(vars(info.config)),
        _DECLARATION: _declaration_of(info.config),
        _LIVE: spec.live if info.config.republish == _republished(spec) else "otherwise",
    }
    return StreamFacts(replicas, find_drift(_plain(asdict(spec)), found))


async def _create(js: JetStreamContext, spec: StreamSpec) -> StreamInfo:
    config = StreamConfig(**_fields(spec), metadata={DECLARED_AS: str(spec.declaration)})
    try:
        made: StreamInfo = await js.add_stream(config)
    except APIError as error:
        if error.err_code in NO_ROOM:
            raise Retry(
                "TooFewServers", f"stream {spec.name}: {error.description}: nats_replicas={spec.num_replicas}"
            ) from error
        if error.err_code != STREAM_NAME_IN_USE:
            raise
        # Another process was faster; its declaration may be older than ours.
        found: StreamInfo = await js.stream_info(spec.name)
        return found
    log.info("bus stream created", stream=spec.name)
    return made


async def _correct(js: JetStreamContext, spec: StreamSpec, info: StreamInfo) -> StreamFacts:
    facts = facts_of(spec, info)
    if _is_newer(info.config, spec):
        log.info("bus stream was declared by a newer release and is left unchanged", stream=spec.name)
    if facts.drift.fixed:
        log.error(
            "bus stream differs from its declaration and cannot be changed in place",
            stream=spec.name,
            drift=dict(facts.drift.fixed),
        )
    if not facts.drift.correctable:
        return facts
    return await _update(js, spec, info, facts.drift)


async def _update(js: JetStreamContext, spec: StreamSpec, info: StreamInfo, drift: Drift) -> StreamFacts:
    """Change the replicas last and alone, so that other fields change even without enough servers."""
    declared = _fields(spec)
    wanted = {name: declared[name] for name in drift.correctable if name in declared and name != _REPLICAS}
    if _LIVE in drift.correctable:
        wanted["republish"] = declared["republish"]
    wanted["metadata"] = {**(info.config.metadata or {}), DECLARED_AS: str(spec.declaration)}
    if drifted := {name: pair for name, pair in drift.correctable.items() if name != _DECLARATION}:
        log.warning("bus stream corrected to its declaration", stream=spec.name, drift=drifted)
    info = await _change(js, info, wanted)
    if _REPLICAS in drift.correctable:
        info = await _change(js, info, {_REPLICAS: spec.num_replicas})
    return facts_of(spec, info)


async def _change(js: JetStreamContext, info: StreamInfo, fields: Mapping[str, object]) -> StreamInfo:
    """Change fields of a stream. Fields that an operator has set (placement, description) are kept."""
    try:
        changed: StreamInfo = await js.update_stream(info.config.evolve(**fields))
    except APIError as error:
        if error.err_code not in (*NO_ROOM, *NO_STORAGE, UNCHANGEABLE):
            raise
        fix = f": {STORAGE_FIX}" if error.err_code in NO_STORAGE else ""
        log.error(
            "bus stream could not be changed",
            stream=info.config.name,
            fields=sorted(fields),
            why=f"{error.description}{fix}",
        )
        return info
    return changed


def _fields(spec: StreamSpec) -> dict[str, Any]:
    """The declaration as fields of a StreamConfig."""
    fields = {name: value for name, value in asdict(spec).items() if name not in _OURS}
    return {**fields, "subjects": list(spec.subjects), "republish": _republished(spec)}


def _republished(spec: StreamSpec) -> RePublish | None:
    """The republication of stored messages on the live subject; None without one."""
    if not spec.live:
        return None
    [subject] = spec.subjects
    # The server leaves out what is false.
    headers_only = True if spec.live == "headers" else None
    return RePublish(src=subject, dest=live_subject(spec, subject), headers_only=headers_only)


def _declaration_of(config: StreamConfig) -> int:
    """0 for a stream without a declaration number."""
    text = (config.metadata or {}).get(DECLARED_AS, "")
    return int(text) if text.isdigit() else 0


def _is_newer(config: StreamConfig, spec: StreamSpec) -> bool:
    return _declaration_of(config) > spec.declaration


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    """Comparable values: enums by value, lists as tuples, no limit as 0."""
    return {name: _plain_value(name, value) for name, value in fields.items()}


def _plain_value(name: str, value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list):
        return tuple(value)
    if name.startswith("max_") and value in (None, 0):
        return 0.0
    return False if value is None else value
