"""Converts posts of object stores to facts: S3 event notifications (AWS, MinIO, Ceph), and SeaweedFS's own
format.

An invalid post raises Permanent; the message names the field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import orjson
from pydantic import BaseModel, Field, ValidationError

from paddlewheel.contracts.crds.limits import KEY_LENGTH
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated, ObjectRemoved
from paddlewheel.core.errors import Permanent

REASON = "BadNotification"
_BUCKETS = "buckets"
_FACTS = {"ObjectCreated": ObjectCreated, "ObjectRemoved": ObjectRemoved}
_DIGEST = 32
_LANES = 32
"""Subjects of a source for each fact. All changes of one object have the same subject, so they stay in order.
The stream limits the size of each subject (`streams.SOURCES`)."""
_MOST_RECORDS = 1000
"""Records of one post, at most. Each becomes a message on the bus."""
_LARGEST = 2**63 - 1
"""The largest size of an object in bytes that the fact can contain."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Notification:
    """A change of one object.

    `id` is made from the store's fields, so it is the same if the post is repeated.
    """

    id: str
    lane: str
    time: datetime
    data: ObjectCreated | ObjectRemoved

    def event(self) -> Event:
        """The event to publish. The webhook has checked that the source can be part of a subject."""
        source = self.data.source
        return make_event(
            self.data,
            id=self.id,
            source=f"s3/{source}",
            namespace=source,
            uid=self.lane,
            time=self.time,
        )


@dataclass(frozen=True)
class _Change:
    """A change of one object, in the fields that both formats have."""

    source: str
    bucket: str
    key: str
    event_name: str
    time: datetime
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    size: int = 0


class _Bucket(BaseModel):
    name: str


class _Object(BaseModel):
    key: str
    size: int = Field(default=0, le=_LARGEST)
    eTag: str = ""  # noqa: N815 - S3's own name
    versionId: str = ""  # noqa: N815 - S3's own name
    sequencer: str = ""


class _S3(BaseModel):
    bucket: _Bucket
    object: _Object


class _Record(BaseModel):
    eventName: str  # noqa: N815 - S3's own name
    eventTime: datetime  # noqa: N815 - S3's own name
    s3: _S3


class _Attributes(BaseModel):
    mtime: int = 0
    mtime_ns: int = 0
    file_size: int = Field(default=0, le=_LARGEST)
    md5: str = ""


class _Chunk(BaseModel):
    modified_ts_ns: int = 0


class _Entry(BaseModel):
    name: str
    is_directory: bool = False
    attributes: _Attributes = _Attributes()
    chunks: list[_Chunk] = []


class _Message(BaseModel):
    old_entry: _Entry | None = None
    new_entry: _Entry | None = None
    new_parent_path: str = ""


class _FilerEvent(BaseModel):
    event_type: str
    key: str
    message: _Message


def read_notifications(source: str, body: bytes, received: datetime) -> tuple[Notification, ...]:
    """The changes in the body of a post. A store's test message, and changes of other things than objects,
    have none.

    Args:
        source: name under which the store sends notifications.
        body: the body of the post.
        received: the time for changes for which the store reports none.

    Raises:
        Permanent: the body is not a notification; the message names the field.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Permanent(REASON, f"body: not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Permanent(REASON, "body: expected an object with Records (S3) or event_type (SeaweedFS)")
    return tuple(_notification(change) for change in _changes(source, parsed, received))


def _changes(source: str, parsed: Mapping[str, Any], received: datetime) -> Iterator[_Change]:
    if "Records" in parsed:
        return _of_s3(source, parsed["Records"])
    if "event_type" in parsed:
        return _of_filer(source, parsed, received)
    if parsed.get("Event") == "s3:TestEvent":
        return iter(())
    raise Permanent(REASON, "Records: missing; an S3 event notification has it, SeaweedFS's has event_type")


def _of_s3(source: str, records: object) -> Iterator[_Change]:
    if not isinstance(records, list):
        raise Permanent(REASON, "Records: expected a list")
    if len(records) > _MOST_RECORDS:
        raise Permanent(REASON, f"Records: at most {_MOST_RECORDS}; send fewer objects in one notification")
    for index, raw in enumerate(records):
        record = _read(_Record, raw, f"Records[{index}]")
        obj = record.s3.object
        if record.eventTime.tzinfo is None:
            raise Permanent(REASON, f"Records[{index}].eventTime: expected a time with its zone")
        yield _Change(
            source=source,
            bucket=record.s3.bucket.name,
            # S3 encodes keys like HTML forms: a space is '+'.
            key=unquote_plus(obj.key),
            event_name=record.eventName,
            time=_in_utc(record.eventTime, f"Records[{index}].eventTime"),
            etag=obj.eTag,
            version_id=obj.versionId,
            sequencer=obj.sequencer,
            size=max(obj.size, 0),
        )


def _of_filer(source: str, parsed: Mapping[str, Any], received: datetime) -> Iterator[_Change]:
    event = _read(_FilerEvent, parsed, "")
    message = event.message
    if event.event_type == "delete":
        path, entry, name, time = event.key, message.old_entry, "ObjectRemoved:Delete", received
    else:
        entry = message.new_entry
        path = f"{message.new_parent_path}/{entry.name}" if entry and message.new_parent_path else event.key
        name, time = "ObjectCreated:Put", _written(entry, received)
    bucket, key = _bucket_of(path)
    if entry is None or entry.is_directory or not key:
        return
    newest = max((chunk.modified_ts_ns for chunk in entry.chunks), default=0)
    at = entry.attributes
    yield _Change(
        source=source,
        bucket=bucket,
        key=key,
        event_name=name,
        time=time,
        etag=at.md5,
        sequencer=f"{at.mtime}.{at.mtime_ns}.{newest}",
        size=max(at.file_size, 0),
    )


def _bucket_of(path: str) -> tuple[str, str]:
    """The bucket and the key of a filer's path.

    The key is "" for unfinished uploads and the filer's own files.
    """
    root, _, rest = path.strip("/").partition("/")
    bucket, _, key = rest.partition("/")
    if root != _BUCKETS or bucket.startswith(".") or key.startswith((".uploads/", ".versions/")):
        return bucket, ""
    return bucket, key


def _written(entry: _Entry | None, received: datetime) -> datetime:
    if entry is None or not entry.attributes.mtime:
        return received
    at = entry.attributes
    try:
        return datetime.fromtimestamp(at.mtime, UTC) + timedelta(microseconds=at.mtime_ns // 1000)
    except (OverflowError, ValueError, OSError) as error:
        raise _beyond_calendar("message.new_entry.attributes.mtime") from error


def _in_utc(time: datetime, where: str) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise _beyond_calendar(where) from error


def _beyond_calendar(where: str) -> Permanent:
    return Permanent(REASON, f"{where}: must be a time between year 1 and 9999 in UTC")


def _notification(change: _Change) -> Notification:
    if len(change.key.encode(errors="replace")) > KEY_LENGTH:
        raise Permanent(REASON, f"key: {change.key[:64]!r}... is longer than {KEY_LENGTH} bytes")
    place = f"{change.source}\0{change.bucket}\0{change.key}"
    marks = (change.event_name, change.version_id, change.sequencer, change.etag)
    # With a sequencer, the time is not needed to distinguish changes. It may be our own, which differs in a
    # retry.
    when = "" if change.sequencer else change.time.isoformat()
    return Notification(
        id=f"s3/{change.source}/{_digest(chr(0).join((place, *marks, when)))}",
        lane=f"{change.source}-{int(_digest(place), 16) % _LANES:02}",
        time=change.time,
        data=_fact(change),
    )


def _fact(change: _Change) -> ObjectCreated | ObjectRemoved:
    kind = change.event_name.removeprefix("s3:").partition(":")[0]
    model = _FACTS.get(kind)
    if model is None:
        raise Permanent(
            REASON,
            f"eventName: {change.event_name!r} is neither ObjectCreated:... nor ObjectRemoved:...;"
            " configure the store to send only these",
        )
    about = {
        "source": change.source,
        "bucket": change.bucket,
        "key": change.key,
        "etag": change.etag,
        "version_id": change.version_id,
        "sequencer": change.sequencer,
        "event_name": change.event_name,
    }
    return ObjectCreated(**about, size=change.size) if model is ObjectCreated else ObjectRemoved(**about)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _read(model: type[M], raw: object, where: str) -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(part for part in (where, *map(str, first["loc"])) if part)
        raise Permanent(REASON, f"{path}: {first['msg']}") from error
