# Generated from protos/paddlewheel/models/v1/models.proto by `make gen`; do not edit.
"""Facts about models. Subject: pw.evt.models.model.<fact>.v1.<namespace>.<uid>, where the uid is that of the object that made
the model, e.g. a PaddleJob.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class ModelPublished(WireModel):
    """A program has reported that it saved a version of a model at `uri`. The version does not change afterwards. PaddleServices
    of the namespace that follow the model's name, without a fixed version or digest, roll it out.
    """

    proto_name: ClassVar[str] = "paddlewheel.models.v1.ModelPublished"

    source: ObjectRef | None = None
    """The object that made the model, e.g. the PaddleJob."""
    name: str = ""
    """Name of the model, in the namespace of its source."""
    version: str = ""
    digest: str = ""
    """Digest of the model's files, sha256:<hex>; "" if it is unknown. PaddleServices refuse files with another digest."""
    uri: str = ""
    """Folder of the saved inference model, e.g. s3://models/digits/3."""
    metrics: dict[str, Double] = {}
    """Results of the training, e.g. accuracy and loss."""
    sample_set: str = ""
    """Name of the SampleSet that the model was trained on; "" if there was none."""
    evidence: str = ""
    """Evidence that the files exist. "Reported": the program has reported it, and no other program has verified it. "": an early
    release published the fact, for every job that succeeded.
    """
