# Generated from protos/paddlewheel/models/v1/models.proto by `make gen`; do not edit.
"""Facts about models. Subject: pw.evt.models.model.<fact>.v1.<namespace>.<uid>, where the uid is that of the object that
made the model.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class ModelPublished(WireModel):
    """The program of the source reported that it saved a version of a model where `uri` says. The version is not changed
    afterwards. PaddleServices of the namespace that name the model without a fixed version or digest roll it out.
    """

    proto_name: ClassVar[str] = "paddlewheel.models.v1.ModelPublished"

    source: ObjectRef | None = None
    """The object that made it, e.g. the PaddleJob."""
    name: str = ""
    """Name of the model, in the namespace of its source."""
    version: str = ""
    digest: str = ""
    """sha256:<hex> of its files; "" when it is not known. Services refuse other files."""
    uri: str = ""
    """Folder of the saved inference model, e.g. s3://models/digits/3."""
    metrics: dict[str, Double] = {}
    """Numbers that training gave (accuracy, loss ...)."""
    sample_set: str = ""
    """The SampleSet it was trained on; "" when there was none."""
    evidence: str = ""
    """How it is known that the files are there. "Reported": by the program's report, which nobody else has verified. "":
    the fact is of an early release, which published the model of every job that succeeded.
    """
