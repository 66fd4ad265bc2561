"""Reads of one data set's records and facts, by requests that name these in their body.

The server's permissions do not see bodies. So an agent with a token asks bus-auth, on a subject with its
set's uid: `pw.read.<uid>.<call>.<stream>` in place of `$JS.API.<call>.<stream>`. This is what bus-auth hands
on: a closed list of requests, each for messages of that set alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.bus import streams
from paddlewheel.contracts.subjects import token
from paddlewheel.core.errors import Permanent

API = "$JS.API"
LARGEST_BATCH = 256
"""Messages in one answer, at most."""
MAX_BODY = 1024
"""Bytes; a request has less than 300."""
BATCH_BYTES = 512 * 1024
"""Of one answer; the rest is asked for by the next request."""
REFUSED = "ReadRefused"
"""Reason of what is not handed on."""
BUSY = "429"
"""Status of the answer to what is not handed on now: it is asked again."""
_ROOT = "pw.read"
_SET, _CALL = 2, 3
"""Which tokens of a subject are the uid and the beginning of the call."""
_BATCH, _SINGLE, _INFO = "DIRECT.GET", "STREAM.MSG.GET", "STREAM.INFO"
_CALLS = {
    streams.RUNS.name: (_BATCH, _SINGLE, _INFO),
    streams.NODES.name: (_BATCH, _SINGLE, _INFO),
    # A fact whose id was stored is looked up.
    streams.CACHE.name: (_SINGLE, _INFO),
}
_READS = frozenset(f"{call}.{stream}" for stream, calls in _CALLS.items() for call in calls)
_BAD_REQUEST = {"code": 400, "err_code": 10003}
"""As JetStream has it."""
LATER = 10008
"""JetStream's error code for what is unavailable for now."""
_ONE = r"(\*|[A-Za-z0-9_-]+)"

Answer = tuple[Mapping[str, str], bytes]
"""Headers and body."""
Pattern = Annotated[str, Field(max_length=512)]
Sequence = Annotated[int, Field(ge=0, lt=1 << 64)]


@dataclass(frozen=True)
class Read:
    """A request that stays within its set.

    Args:
        body: written anew, so that the server reads nothing in it that was not checked.
    """

    set_uid: str
    call: str
    stream: str
    body: bytes

    @property
    def subject(self) -> str:
        """Of JetStream's API."""
        return f"{API}.{self.call}.{self.stream}"

    @property
    def is_batch(self) -> bool:
        """It has several answers, the last of which is no message."""
        return self.call == _BATCH

    @property
    def is_info(self) -> bool:
        """Its answer tells of the whole stream."""
        return self.call == _INFO


class _Wanted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Last(_Wanted):
    last_by_subj: Pattern


class _Next(_Wanted):
    next_by_subj: Pattern
    seq: Sequence


class _Batch(_Next):
    batch: int = Field(ge=1, le=LARGEST_BATCH)


def read_api(set_uid: str) -> str:
    """What agents of a set ask in place of `$JS.API`; `*` = of all sets."""
    return f"{_ROOT}.{token(set_uid, 'set_uid', wild=True)}"


def read_subjects(set_uid: str = "*") -> frozenset[str]:
    """Where reads of a set are asked for."""
    return frozenset(f"{read_api(set_uid)}.{call}" for call in _READS)


def handed_on() -> frozenset[str]:
    """The requests to JetStream that become of them."""
    return frozenset(f"{API}.{call}" for call in _READS)


def is_read(subject: bytes) -> bool:
    """Whether a message on it is a request for a read."""
    return subject.startswith(_ROOT.encode())


def set_of(subject: str) -> str:
    """The uid in whose name it is asked to read or to write; the server lets nobody ask in another's."""
    return subject.split(".")[_SET]


def parse_read(subject: str, body: bytes) -> Read:
    """What is asked for on one of `read_subjects`. Raises Permanent when it is not of that set alone."""
    tokens = subject.split(".")
    call, stream = ".".join(tokens[_CALL:-1]), tokens[-1]
    if f"{call}.{stream}" not in _READS:
        raise Permanent(REFUSED, "no such read")
    uid = token(tokens[_SET], "set_uid")
    if call == _INFO:
        _check(not body, "the stream as a whole is told of, no subjects")
        return Read(uid, call, stream, b"")
    wanted = _parse(call, body)
    pattern = wanted.last_by_subj if isinstance(wanted, _Last) else wanted.next_by_subj
    _check(bool(_own(uid, stream).fullmatch(pattern)), "it is not within the data set that asks")
    limits = {"max_bytes": BATCH_BYTES} if call == _BATCH else {}
    return Read(uid, call, stream, json.dumps({**wanted.model_dump(), **limits}).encode())


def _parse(call: str, body: bytes) -> _Last | _Next:
    """Raises Permanent."""
    _check(len(body) <= MAX_BODY, f"it has more than {MAX_BODY} bytes")
    kinds = (_Batch,) if call == _BATCH else (_Last, _Next)
    for kind in kinds:
        try:
            return kind.model_validate_json(body)
        except ValidationError:
            continue
    raise Permanent(REFUSED, "it asks for something else than the messages of a subject")


def _own(uid: str, stream: str) -> re.Pattern[str]:
    """Patterns that match nothing but messages of the set."""
    if stream == streams.CACHE.name:
        return re.compile(rf"pw\.evt\.cache(\.{_ONE}){{4}}\.{re.escape(uid)}")
    [subjects] = streams.stream_named(stream).subjects
    below = re.escape(subjects.removesuffix(">") + uid)
    return re.compile(rf"{below}(\.{_ONE})*(\.{_ONE}|\.>)")


def shown_info(answer: bytes) -> bytes:
    """What of a stream's state is told: whether it is the same, and its sequences. No keys, and no counts."""
    found: dict[str, Any] = json.loads(answer)
    shown: dict[str, Any] = {name: found[name] for name in ("type", "error", "created") if name in found}
    if state := found.get("state"):
        shown["state"] = {name: state[name] for name in ("first_seq", "last_seq")}
    return json.dumps(shown).encode()


def refusal(subject: str, why: str) -> Answer:
    """As JetStream answers to a bad request."""
    if f".{_BATCH}." in subject:
        return {"Status": "408", "Description": f"Bad Request: {why}"}, b""
    return error_of(why)


def error_of(why: str) -> Answer:
    """As JetStream answers to a bad request that is no batch."""
    return {}, json.dumps({"error": {**_BAD_REQUEST, "description": f"bad request: {why}"}}).encode()


def busy(subject: str) -> Answer:
    """The answer to what is not handed on now."""
    why = "bus-auth has too much to do"
    if f".{_BATCH}." in subject:
        return {"Status": BUSY, "Description": why}, b""
    error = {"code": int(BUSY), "err_code": LATER, "description": why}
    return {"Status": BUSY}, json.dumps({"error": error}).encode()


def is_busy(headers: Mapping[str, str]) -> bool:
    """Whether an answer has these headers; what a message was stored with may not look like it."""
    return headers.get("Status") == BUSY and "Nats-Sequence" not in headers


def _check(holds: bool, why: str) -> None:
    if not holds:
        raise Permanent(REFUSED, why)
