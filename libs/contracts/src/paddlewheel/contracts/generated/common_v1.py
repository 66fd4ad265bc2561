# Generated from protos/paddlewheel/common/v1/common.proto by `make gen`; do not edit.
"""Types that all contexts share."""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class ObjectRef(WireModel):
    """The Kubernetes object a fact is about, as its controller observed it when the fact became true."""

    proto_name: ClassVar[str] = "paddlewheel.common.v1.ObjectRef"

    namespace: str = ""
    name: str = ""
    uid: str = ""
    """metadata.uid: the last token of the fact's subject. An object created again under the same name has another one."""
    generation: Int64 = 0
    """metadata.generation of the spec that was acted on."""
    resource_version: str = ""
    """metadata.resourceVersion that was observed; an opaque order within one object. The write that records the fact gives
    the object a later one.
    """
