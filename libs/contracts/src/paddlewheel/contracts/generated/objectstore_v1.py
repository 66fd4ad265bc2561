# Generated from protos/paddlewheel/objectstore/v1/objectstore.proto by `make gen`; do not edit.
"""Notifications of object stores, one message for each changed object. Subscribers cannot read them: trigger-controller
removes each message after handling it.

Subject: pw.src.objectstore.object.<fact>.v1.<source>.<lane>. <source> is the name under which the store sends
notifications (POST /v1/sources/s3/<source>). <lane> is one of 32 for each source; all changes of an object have the same
lane, so they stay in order.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class ObjectCreated(WireModel):
    """The store has reported that an object was written, either a new one or a new version of an existing one. Published once
    for each notification of the store.
    """

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectCreated"

    source: str = ""
    """Name under which the store sends notifications."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    size: Int64 = 0
    """Size in bytes; 0 if the store has not reported it."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """Value by which the store orders changes to one key, unchanged."""
    event_name: str = ""
    """Name that the store gives the event, e.g. s3:ObjectCreated:Put."""


class ObjectRemoved(WireModel):
    """The store has reported that an object was removed, or hidden by a delete marker."""

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectRemoved"

    source: str = ""
    """Name under which the store sends notifications."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """Value by which the store orders changes to one key, unchanged."""
    event_name: str = ""
    """Name that the store gives the event, e.g. s3:ObjectRemoved:Delete."""
