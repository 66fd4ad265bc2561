"""Writes of one data set's records and work, in streams that all sets share.

The server's permissions bound neither keys nor bytes. So an agent with a token asks bus-auth to write, on a
subject with its set's uid: `pw.write.<uid>.<subject>` in place of `<subject>`. This is what bus-auth
publishes: a closed list of messages, each of that set alone. How much of them is `bus.admin.set_quotas`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from paddlewheel.bus import streams
from paddlewheel.bus.admin.set_reads import LATER, Answer, error_of
from paddlewheel.bus.markers import DELETED, DONE, EXPECTED
from paddlewheel.bus.streams import StreamSpec
from paddlewheel.contracts.crds.limits import PARTITIONS
from paddlewheel.contracts.run_keys import (
    NODE_RECORDS,
    RUN_RECORDS,
    NodeKey,
    Record,
    parse_node_key,
    parse_run_record,
)
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import Permanent

REFUSED = "WriteRefused"
"""Reason of what is not published."""
UNKNOWN = "504"
"""Status of the answer to what was published, and not acknowledged: nobody knows whether it is stored."""
MAX_HEADERS = 1024
"""Bytes; a write has less than 100."""
MAX_RECORD = 640 * 1024
"""Bytes of a record of a run. A state with 1,000 partitions has 17 KiB; 40 files that are named, each with a
path as long as Linux takes, and a reason, have 500 KiB."""
WORK_SUBJECTS = "pw.work.cache.*.*.*.*.v1"
"""Every chunk of every set."""
_ROOT = "pw.write"
_SUBJECT_MAX = 512
_ABOUT_ASKER = "Nats-Request-Info"
"""The server adds it to what crosses accounts."""
_REVISION = re.compile(r"0|[1-9][0-9]{0,19}")
_CHUNK = re.compile(r"pw\.work\.cache\.([^.]+)\.([^.]+)\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,17})\.v1")
_TOO_LARGE = {"code": 400, "err_code": 10054, "description": "message size exceeds maximum allowed"}
_FULL = {"code": 503, "err_code": 10077}
"""As JetStream has them."""
_WRITTEN = {streams.RUNS.name: RUN_RECORDS, streams.NODES.name: NODE_RECORDS}
_LARGEST = {
    streams.RUNS.name: MAX_RECORD,
    streams.NODES.name: streams.NODES.max_msg_size,
    streams.WORK.name: streams.WORK.max_msg_size,
}


@dataclass(frozen=True)
class Write:
    """A message that is its set's own.

    Args:
        headers: in words of our own, so that the server reads nothing in them that was not checked.
    """

    set_uid: str
    stream: str
    subject: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def everything(self) -> str:
        """Pattern of all that the set has in the stream."""
        head, uid, _ = self.subject.partition(f".{self.set_uid}.")
        return f"{head}{uid}>"

    @property
    def ends_work(self) -> bool:
        """What takes the place of a chunk that is done, and goes by itself."""
        return self.headers == DONE


def write_prefix(set_uid: str) -> str:
    """What stands before the subjects that agents of a set write."""
    return f"{_ROOT}.{set_uid}"


def write_subjects(set_uid: str = "*") -> Mapping[str, str]:
    """Where writes of a set are asked for: what is published then, and the subject that asks for it."""
    written = (*(_records(stream, keys) for stream, keys in _WRITTEN.items()), WORK_SUBJECTS)
    own = [each.replace("*", set_uid, 1) for each in written]
    return {each: f"{write_prefix(set_uid)}.{each}" for each in own}


def is_write(subject: bytes) -> bool:
    """Whether a message on it asks for a write."""
    return subject.startswith(_ROOT.encode())


def is_asked_for(subject: str) -> bool:
    """Whether who has no right to publish on it may ask bus-auth to."""
    return subject.startswith(("$KV.", "pw.work."))


def largest(subject: str) -> int:
    """Bytes that the body of a request may have."""
    return _LARGEST[_stream_of(subject.split(".", 3)[3]).name]


def parse_write(subject: str, headers: Mapping[str, str], body: bytes) -> Write:
    """What is to be written, asked for on one of `write_subjects`.

    Raises:
        Permanent: it is no message that an agent of that set writes.
    """
    _check(len(subject) <= _SUBJECT_MAX, "its subject is too long")
    _, _, uid, inner = subject.split(".", 3)
    stream = _stream_of(inner)
    _check(_is_own(stream, uid, inner), "it is no record or chunk of the data set that asks")
    own = {name: value for name, value in headers.items() if name != _ABOUT_ASKER}
    _check(_is_known(stream, own, body), "its headers are not those of a record or a chunk")
    return Write(uid, stream.name, inner, own, body)


def _stream_of(inner: str) -> StreamSpec:
    """Of those that agents write; the server takes no other subject from them. Raises Permanent."""
    for stream in (streams.RUNS, streams.NODES, streams.WORK):
        if streams.matches(stream.subjects[0], inner):
            return stream
    raise Permanent(REFUSED, "no such write")


def _is_own(stream: StreamSpec, uid: str, inner: str) -> bool:
    """A subject is compared with the one that its parts give: numbers are written in one way only."""
    if stream == streams.WORK:
        chunk = _CHUNK.fullmatch(inner)
        if chunk is None or chunk[1] != uid or int(chunk[3]) >= PARTITIONS:
            return False
        return inner == work_subject(uid, chunk[2], int(chunk[3]), int(chunk[4]))
    key = inner.removeprefix(stream.subjects[0].removesuffix(">"))
    return key in (_run_keys(uid, key) if stream == streams.RUNS else _node_keys(uid, key))


def _run_keys(uid: str, key: str) -> tuple[str, ...]:
    """The key, if it is that of a record that agents write."""
    found = parse_run_record(key)
    if found is None or found.run.set_uid != uid:
        return ()
    if found.record is Record.STATE:
        return (found.run.state,)
    is_part = found.record is Record.PART and found.partition < PARTITIONS
    return (found.run.part(found.partition),) if is_part else ()


def _node_keys(uid: str, key: str) -> tuple[str, ...]:
    found = parse_node_key(key)
    if found is None or found.set_uid != uid or found.partition >= PARTITIONS:
        return ()
    return (str(NodeKey(uid, found.partition)),)


def _is_known(stream: StreamSpec, headers: Mapping[str, str], body: bytes) -> bool:
    """What agents send: nothing beside, and nothing else that lasts for a while."""
    if stream == streams.WORK:
        return headers == DONE if not body else not headers
    if set(headers) == {EXPECTED}:
        return bool(_REVISION.fullmatch(headers[EXPECTED]))
    return not headers or (headers == DELETED and not body)


def refusal(_: str, why: str) -> Answer:
    """As JetStream answers to a bad request."""
    return error_of(why)


def too_large(_: str) -> Answer:
    """As JetStream answers to what is larger than its stream takes."""
    return {}, json.dumps({"error": _TOO_LARGE}).encode()


def full() -> Answer:
    """As JetStream answers when a stream is full."""
    why = "maximum bytes exceeded: of the share that one data set has"
    return {}, json.dumps({"error": {**_FULL, "description": why}}).encode()


def unknown(_: str) -> Answer:
    """To what was published and is not acknowledged."""
    error = {"code": int(UNKNOWN), "err_code": LATER, "description": "not acknowledged in time"}
    return {"Status": UNKNOWN}, json.dumps({"error": error}).encode()


def is_unknown(headers: Mapping[str, str]) -> bool:
    """Whether an answer has these headers."""
    return headers.get("Status") == UNKNOWN


def _records(stream: str, keys: str) -> str:
    [subject] = streams.stream_named(stream).subjects
    return subject.removesuffix(">") + keys


def _check(holds: bool, why: str) -> None:
    if not holds:
        raise Permanent(REFUSED, why)
