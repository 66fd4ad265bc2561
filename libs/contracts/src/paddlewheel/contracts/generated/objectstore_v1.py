# Generated from protos/paddlewheel/objectstore/v1/objectstore.proto by `make gen`; do not edit.
"""Notifications of object stores, one message for each object that changed. Subscribers cannot read them:
trigger-controller removes each one after handling it.
Subject: pw.src.objectstore.object.<fact>.v1.<source>.<lane>, where <source> is the name under which the store
notifies (POST /v1/sources/s3/<source>). All changes of one object have the same <lane>, of 32 for each source, so
that they stay in order.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class ObjectCreated(WireModel):
    """The store reported that an object was written: a new one, or a new version of an existing one. Published as often as
    the store reports it, and not at all if it does not.
    """

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectCreated"

    source: str = ""
    """Name under which the store notifies."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    size: Int64 = 0
    """Bytes; 0 if the store did not report it."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """The store's own order of changes to one key, verbatim."""
    event_name: str = ""
    """The store's name of the event, e.g. s3:ObjectCreated:Put."""


class ObjectRemoved(WireModel):
    """The store reported that an object was removed, or hidden by a delete marker."""

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectRemoved"

    source: str = ""
    """Name under which the store notifies."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """The store's own order of changes to one key, verbatim."""
    event_name: str = ""
    """The store's name of the event, e.g. s3:ObjectRemoved:Delete."""
