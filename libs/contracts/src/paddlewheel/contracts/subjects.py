"""Builds and parses all NATS subjects.

Tokens are validated: a name with a dot or a wildcard cannot change the meaning of a subject.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.registry import ENTITIES, EVENTS, ROOTS
from paddlewheel.core.errors import Permanent

_EVENTS = "pw.evt"

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_TYPE = re.compile(r"paddlewheel\.([a-z]+)\.(v[1-9][0-9]*)\.([A-Z][A-Za-z0-9]*)")
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_ANY = "*"


@dataclass(frozen=True)
class EventSubject:
    """The parts of `pw.evt.<context>.<entity>.<fact>.<version>.<namespace>.<uid>`."""

    context: str
    entity: str
    fact: str
    version: str
    namespace: str
    uid: str

    def __str__(self) -> str:
        parts = (self.context, self.entity, self.fact, self.version, self.namespace, self.uid)
        return ".".join((_root(self.context), *parts))


def event_subject(event: BaseModel | type[BaseModel] | str, namespace: str, uid: str) -> str:
    """The subject of a fact, given its model, its model class or its type (full name in `protos/`).

    Raises:
        Permanent: the type is not that of a fact, or `namespace` or `uid` is not a valid token.
    """
    context, entity, fact, version = _words_of(type_name(event))
    place = (token(namespace, "namespace"), token(uid, "uid"))
    return str(EventSubject(context, entity, fact, version, *place))


def event_filter(
    context: str,
    entity: str = _ANY,
    fact: str = _ANY,
    namespace: str = _ANY,
    uid: str = _ANY,
    *,
    version: str = "v1",
) -> str:
    """A filter for subjects of facts; `*` matches any value."""
    parts = {"context": context, "entity": entity, "fact": fact, "version": version}
    parts |= {"namespace": namespace, "uid": uid}
    return ".".join((_root(context), *(token(value, name, wild=True) for name, value in parts.items())))


def parse_event_subject(subject: str) -> EventSubject:
    """Parse the subject of a fact. Raises Permanent if it is the subject of anything else."""
    tokens = subject.split(".")
    if len(tokens) != 8 or ".".join(tokens[:2]) != _root(tokens[2]):
        raise Permanent(
            "MalformedSubject", f"{subject!r} is not pw.evt.<context>.<entity>.<fact>.<v>.<ns>.<uid>"
        )
    return EventSubject(*(token(part, "token") for part in tokens[2:]))


def is_place_of_unknown(type_: str, subject: str) -> bool:
    """Whether the subject belongs to a fact of this type, which this release does not know."""
    match, tokens = _TYPE.fullmatch(type_), subject.split(".")
    if not match or len(tokens) != 8:
        return False
    root, place = ".".join(tokens[:2]), tuple(tokens[2:6])
    context, entity, fact, version = place
    roots = {ROOTS[context]} if context in ROOTS else {_EVENTS, *ROOTS.values()}
    # If the subject belongs to a known type, the unknown type is a mistake of the publisher.
    if root not in roots or place in _known_places():
        return False
    words = f"{entity}{fact}".replace("-", "")
    is_spelled = (context, words, version) == (match[1], match[3].lower(), match[2])
    return is_spelled and all(map(_TOKEN.fullmatch, tokens))


def work_subject(set_uid: str, run_id: str, partition: int, chunk: int) -> str:
    """The subject of one chunk of work for a partition in a run."""
    return work_filter(set_uid, run_id, str(partition), str(chunk))


def work_filter(set_uid: str, run_id: str = _ANY, partition: str = _ANY, chunk: str = _ANY) -> str:
    """A filter for chunks of a run, or of a whole set; `*` matches any value."""
    parts = {"set_uid": set_uid, "run_id": run_id, "partition": partition, "chunk": chunk}
    tokens = ".".join(token(value, name, wild=name != "set_uid") for name, value in parts.items())
    return f"pw.work.cache.{tokens}.v1"


def dead_letter_subject(durable: str) -> str:
    """The subject of dead letters: messages that a durable consumer could not handle."""
    return f"pw.dlq.{token(durable, 'durable')}"


def replay_subject(durable: str) -> str:
    """The subject on which replayed dead letters wait for the durable consumer that failed."""
    return f"{dead_letter_subject(durable)}.again"


def command_subject(service: str, verb: str) -> str:
    """The subject of a command to all replicas of a service."""
    return f"pw.cmd.{token(service, 'service')}.{token(verb, 'verb')}.v1"


def type_name(event: BaseModel | type[BaseModel] | str) -> str:
    """The full name in `protos/` of a contract model. Raises Permanent for other models."""
    if isinstance(event, str):
        return event
    model = event if isinstance(event, type) else type(event)
    if not issubclass(model, WireModel) or not model.proto_name:
        raise Permanent("UnknownType", f"{model.__name__} is not a generated contract model")
    return model.proto_name


def _words_of(type_: str) -> tuple[str, str, str, str]:
    """Context, entity, fact and version of a type, e.g. sampleset and sync-failed of SampleSetSyncFailed."""
    match = _TYPE.fullmatch(type_)
    entities = ENTITIES.get(match[1], ()) if match else ()
    entity = next((e for e in entities if match and match[3].startswith(e) and match[3] != e), "")
    if not match or not entity:
        raise Permanent("UnknownType", f"{type_!r} is not the type of a fact of {', '.join(ENTITIES)}")
    fact = _WORD_START.sub("-", match[3].removeprefix(entity)).lower()
    return match[1], entity.lower(), fact, match[2]


@cache
def _known_places() -> frozenset[tuple[str, ...]]:
    return frozenset(map(_words_of, EVENTS))


def _root(context: str) -> str:
    """The first two tokens of a context's subjects.

    Notifications of object stores have others than our facts.
    """
    return ROOTS.get(context, _EVENTS)


def token(value: str, name: str, *, wild: bool = False) -> str:
    """Check one token of a subject or key. Raises Permanent if it contains an invalid character.

    Args:
        value: the token.
        name: the token's name in the error message.
        wild: whether `*` is allowed.
    """
    if (wild and value == _ANY) or _TOKEN.fullmatch(value):
        return value
    raise Permanent("MalformedSubject", f"{name}: {value!r} has characters outside A-Z a-z 0-9 _ -")
