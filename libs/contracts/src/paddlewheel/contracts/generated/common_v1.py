# Generated from protos/paddlewheel/common/v1/common.proto by `make gen`; do not edit.
"""Types that several contexts use."""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class ObjectRef(WireModel):
    """The Kubernetes object that a fact is about, as its controller observed it when the fact became true."""

    proto_name: ClassVar[str] = "paddlewheel.common.v1.ObjectRef"

    namespace: str = ""
    name: str = ""
    uid: str = ""
    """metadata.uid, which is the last token of the fact's subject. An object created again with the same name has another uid."""
    generation: Int64 = 0
    """metadata.generation of the spec that was reconciled."""
    resource_version: str = ""
    """metadata.resourceVersion that was observed. The write that records the fact gives the object a later one."""
