"""The declarations of all streams and buckets, and their allowed differences on a live server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from paddlewheel.core.errors import Permanent

_MIB = 1024 * 1024
_DAY = 86400.0

BUS_FULL = "BusFull"
"""Reason of the Retry that a full stream with `discard="new"` raises."""

ID_TAKEN = "IdTaken"
"""Reason of the Retry for a fact whose id another subject used within the duplicate window."""

MAX_MESSAGE = 960 * 1024
"""Bytes of headers and payload that the streams take. The rest of NATS's 1 MiB is for dead-letter headers."""

RUNS_BUCKET = "pw_cache_runs"
NODES_BUCKET = "pw_cache_nodes"
TRIGGERS_BUCKET = "pw_triggers"
DEFERRED_BUCKET = "pw_trigger_deferred"
ORIGINS_BUCKET = "pw_trigger_origins"


@dataclass(frozen=True)
class StreamSpec:
    """One stream as it must be. Sizes in bytes, times in seconds, 0 = no limit.

    Args:
        live: the part of each stored message that the server publishes on `live_subject`. Readers without a
            consumer need the headers. Subscribers receive the whole messages, so that a fact that is refused
            or repeated does not reach them.
        declaration: a number that is raised whenever another field changes. A service with an older
            declaration leaves the stream as it is, so that two releases do not undo each other's changes
            during an upgrade.
    """

    name: str
    subjects: tuple[str, ...]
    max_bytes: int
    max_age: float = 0.0
    retention: str = "limits"
    discard: str = "old"
    storage: str = "file"
    duplicate_window: float = 120.0
    max_msg_size: int = MAX_MESSAGE
    max_msgs_per_subject: int = -1
    deny_delete: bool = False
    allow_rollup_hdrs: bool = False
    allow_msg_ttl: bool = False
    allow_direct: bool = False
    discard_new_per_subject: bool = False
    num_replicas: int = 1
    live: Literal["", "headers", "messages"] = ""
    declaration: int = 1


def _bucket(name: str, max_bytes: int, max_msg_size: int = MAX_MESSAGE) -> StreamSpec:
    """A key-value bucket: the stream layout every NATS client knows, history of one.

    `allow_rollup_hdrs` is not set: a client that may write one key could remove all others by a header.
    """
    return StreamSpec(
        name=f"KV_{name}",
        subjects=(f"$KV.{name}.>",),
        max_bytes=max_bytes,
        max_msg_size=max_msg_size,
        discard="new",
        max_msgs_per_subject=1,
        deny_delete=True,
        allow_msg_ttl=True,
        allow_direct=True,
        live="headers",
        declaration=3,
    )


def _facts(
    name: str,
    max_bytes: int,
    max_age: float = 7 * _DAY,
    *,
    max_msg_size: int = MAX_MESSAGE,
    max_msgs_per_subject: int = -1,
    declaration: int,
) -> StreamSpec:
    """The facts of one context. Subscribers receive each one live once it is stored."""
    return StreamSpec(
        name=f"PW_{name}",
        subjects=(f"pw.evt.{name.lower()}.>",),
        max_bytes=max_bytes,
        max_age=max_age,
        max_msg_size=max_msg_size,
        max_msgs_per_subject=max_msgs_per_subject,
        allow_direct=True,
        live="messages",
        declaration=declaration,
    )


def _lossy(name: str, max_bytes: int, *, max_msg_size: int = MAX_MESSAGE, declaration: int) -> StreamSpec:
    """A stream of the last fact of each object, each of which replaces all earlier ones.

    It is in memory, because writing to disk would limit the rate. After a loss, a running object publishes
    the next fact soon.
    """
    facts = _facts(
        name, max_bytes, _DAY, max_msg_size=max_msg_size, max_msgs_per_subject=1, declaration=declaration
    )
    return replace(facts, storage="memory")


JOBS = _facts("JOBS", 256 * _MIB, declaration=2)
PROGRESS = _lossy("PROGRESS", 16 * _MIB, declaration=2)
DATASETS = _facts("DATASETS", 256 * _MIB, declaration=3)
TRIGGERS = _facts("TRIGGERS", 32 * _MIB, declaration=2)
MODELS = _facts("MODELS", 64 * _MIB, 365 * _DAY, declaration=3)
SERVING = _facts("SERVING", 32 * _MIB, declaration=2)
# Published by users' programs: the measurements of one service cannot displace others.
MEASUREMENTS = _facts(
    "MEASUREMENTS", 64 * _MIB, max_msg_size=8 * 1024, max_msgs_per_subject=256, declaration=3
)
# Published by agents. A set has four subjects, which take at most an eighth of the bytes, so it cannot
# displace
# other sets. It has up to 1,000 partitions, each of which may publish a fact about its mount.
CACHE = _facts("CACHE", 128 * _MIB, _DAY, max_msg_size=4 * 1024, max_msgs_per_subject=1024, declaration=4)
CACHE_PROGRESS = _lossy("CACHEPROGRESS", 8 * _MIB, max_msg_size=4 * 1024, declaration=2)
# Notifications of object stores, until a trigger has handled them. A store whose notification is refused
# sends it again. A source has 64 subjects, so it takes half of the bytes at most, and usually a tenth.
SOURCES = StreamSpec(
    "PW_SOURCES",
    ("pw.src.>",),
    max_bytes=128 * _MIB,
    retention="workqueue",
    discard="new",
    max_msg_size=8 * 1024,
    max_msgs_per_subject=128,
    discard_new_per_subject=True,
    declaration=2,
)
WORK = StreamSpec(
    "PW_WORK",
    ("pw.work.>",),
    max_bytes=512 * _MIB,
    # Each chunk has a subject of its own; a chunk that is published again replaces the former one.
    max_msgs_per_subject=1,
    # A full stream refuses new chunks; dropping old ones would lose work.
    discard="new",
    allow_direct=True,
    allow_msg_ttl=True,
    declaration=2,
)
DEAD_LETTERS = StreamSpec(
    "PW_DLQ",
    ("pw.dlq.*",),
    max_bytes=128 * _MIB,
    max_age=30 * _DAY,
    # A full stream stops the consumers; discarding the oldest letters would lose messages unnoticed.
    discard="new",
    # A consumer that crashed between parking and acknowledging stores the same letter once.
    duplicate_window=_DAY,
    max_msg_size=-1,
)
# Replayed dead letters on their way to the durable that failed; removed once it has ended them.
REPLAYS = StreamSpec(
    "PW_REPLAY",
    ("pw.dlq.*.again",),
    max_bytes=64 * _MIB,
    retention="workqueue",
    discard="new",
    duplicate_window=_DAY,
    max_msg_size=-1,
)
RUNS = _bucket(RUNS_BUCKET, 64 * _MIB)
# Several times the size of a report with a message of 1,000 characters.
NODES = replace(_bucket(NODES_BUCKET, 16 * _MIB, max_msg_size=16 * 1024), declaration=4)
# Marks of handled events expire after twice the time for which a stream keeps facts. A full bucket drops the
# oldest marks of all triggers, so it holds nothing else. The marks of one namespace take at most 5 MiB.
FIRED = replace(_bucket(TRIGGERS_BUCKET, 64 * _MIB), discard="old", max_age=14 * _DAY)
# Deferred events and the creators of objects cannot be restored: a full bucket refuses more.
DEFERRED = replace(_bucket(DEFERRED_BUCKET, 64 * _MIB), max_age=14 * _DAY)
ORIGINS = replace(_bucket(ORIGINS_BUCKET, 64 * _MIB), max_age=14 * _DAY)

STREAMS = (
    JOBS,
    PROGRESS,
    DATASETS,
    TRIGGERS,
    MODELS,
    SERVING,
    MEASUREMENTS,
    SOURCES,
    CACHE,
    CACHE_PROGRESS,
    WORK,
    DEAD_LETTERS,
    REPLAYS,
    RUNS,
    NODES,
    FIRED,
    DEFERRED,
    ORIGINS,
)
BUCKETS = (RUNS_BUCKET, NODES_BUCKET, TRIGGERS_BUCKET, DEFERRED_BUCKET, ORIGINS_BUCKET)

DECLARED_AS = "paddlewheel.declaration"
"""Key in a live stream's metadata that holds its `declaration`."""

ENLARGED = ("max_bytes", "max_age")
"""Limits that an operator may raise on a running stream."""

FIXED = ("retention", "storage")
"""Fields of a running stream that only an operator can change (move, or delete and rebuild)."""


@dataclass(frozen=True)
class Limits:
    """Limits that an operator raises above the declaration. Bytes and seconds, 0 = as declared."""

    max_bytes: int = 0
    max_age: float = 0.0


def enlarged(spec: StreamSpec, limits: Limits) -> StreamSpec:
    """The stream with these limits. Raises Permanent for a limit below the declared one."""
    changes = {name: value for name, value in vars(limits).items() if value}
    for name, value in changes.items():
        if value < (least := getattr(spec, name)) or not least:
            raise Permanent(
                "LimitTooSmall", f"{spec.name}: {name}={value:g} is too small: set at least {least:g}"
            )
    return replace(spec, **changes)


@dataclass(frozen=True)
class Drift:
    """How a live stream differs from its declaration: field to (declared, found)."""

    correctable: Mapping[str, tuple[object, object]]
    fixed: Mapping[str, tuple[object, object]]


def find_drift(declared: Mapping[str, object], found: Mapping[str, object]) -> Drift:
    """Compare the declared fields one by one. A limit that an operator raised is no drift."""
    differing = {
        name: (want, found.get(name))
        for name, want in declared.items()
        if _differs(name, want, found.get(name))
    }
    return Drift(
        correctable={name: pair for name, pair in differing.items() if name not in FIXED},
        fixed={name: pair for name, pair in differing.items() if name in FIXED},
    )


def _differs(name: str, want: object, have: object) -> bool:
    if not isinstance(want, int | float) or not isinstance(have, int | float):
        return want != have
    if name == "num_replicas":
        return have < want
    if name in ENLARGED:
        # 0 or less = no limit.
        return have > 0 and (have < want or want <= 0)
    return want != have


def live_subject(spec: StreamSpec, pattern: str) -> str:
    """The subject on which the server publishes each stored message of a subject of the stream."""
    [stored] = spec.subjects
    return f"pw.live.{spec.name}.{pattern.removeprefix(stored.removesuffix('>'))}"


def stream_named(name: str) -> StreamSpec:
    """Raises Permanent for a stream that is not declared."""
    for spec in STREAMS:
        if spec.name == name:
            return spec
    raise Permanent("UnknownStream", f"{name} is not declared in paddlewheel.bus.streams")


def stream_of(subject: str) -> StreamSpec:
    """The stream that stores a subject. Raises Permanent when none does."""
    for spec in STREAMS:
        if any(matches(pattern, subject) for pattern in spec.subjects):
            return spec
    raise Permanent("NoStream", f"no stream is declared for subject {subject}")


def streams_under(subjects: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Stream name to the subject filters that overlap its subjects; other streams are left out."""
    touched = {
        spec.name: tuple(s for s in subjects if any(overlaps(pattern, s) for pattern in spec.subjects))
        for spec in STREAMS
    }
    return {name: filters for name, filters in touched.items() if filters}


def matches(pattern: str, subject: str) -> bool:
    """NATS matching of one subject by a pattern with `*` and a final `>`."""
    if pattern.endswith(".>") and "*" not in pattern:
        # A fast path for the patterns of streams, which are compared with every published message.
        return subject.startswith(pattern[:-1]) and len(subject) >= len(pattern)
    wanted, given = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(given) > index
        if index >= len(given) or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def overlaps(left: str, right: str) -> bool:
    """Whether some subject is matched by both patterns."""
    for one, other in zip(left.split("."), right.split("."), strict=False):
        if ">" in (one, other):
            return True
        if "*" not in (one, other) and one != other:
            return False
    return left.count(".") == right.count(".")
