# Generated from protos/paddlewheel/objectstore/v1/objectstore.proto by `make gen`; do not edit.
"""What object stores notify of, one message for each object that changed.
Subject: pw.src.objectstore.object.<fact>.v1.<source>.<object>, where <source> is the name under which the store
notifies (POST /v1/sources/s3/<source>) and <object> a digest of bucket and key, so that changes of one object
stay in order.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class ObjectCreated(WireModel):
    """The store said that an object was written: new, or in place of an older one. Told as often as the store says it, and
    not at all when the store keeps silent.
    """

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectCreated"

    source: str = ""
    """Name under which the store notifies."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    size: Int64 = 0
    """Bytes; 0 when the store did not say."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """The store's own order of changes to one key, as it wrote it."""
    event_name: str = ""
    """The store's word, e.g. s3:ObjectCreated:Put."""


class ObjectRemoved(WireModel):
    """The store said that an object was removed, or hidden by a delete marker."""

    proto_name: ClassVar[str] = "paddlewheel.objectstore.v1.ObjectRemoved"

    source: str = ""
    """Name under which the store notifies."""
    bucket: str = ""
    key: str = ""
    """The object's key, decoded."""
    etag: str = ""
    version_id: str = ""
    sequencer: str = ""
    """The store's own order of changes to one key, as it wrote it."""
    event_name: str = ""
    """The store's word, e.g. s3:ObjectRemoved:Delete."""
