# Generated from protos/paddlewheel/progress/v1/progress.proto by `make gen`; do not edit.
"""Progress of training, as the programs report it. Subject: pw.evt.progress.job.<fact>.v1.<namespace>.<uid>, where the uid
is the PaddleJob's. In a stream of its own, which keeps the last fact of each job: thousands of jobs that report for
days would otherwise push out the facts that must not be lost.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class JobProgressed(WireModel):
    """How far the training is at ce-time, as its program says; what it does not say is 0. Lossy by design: at most one every ten seconds for each job, none while the bus is unreachable; each one supersedes
    all before it. After a restart from a checkpoint steps may go back. Do not wait for the last one: JobSucceeded ends
    the job.
    """

    proto_name: ClassVar[str] = "paddlewheel.progress.v1.JobProgressed"

    job: ObjectRef | None = None
    step: Int64 = 0
    """Steps done, counted over the whole training."""
    total_steps: Int64 = 0
    epoch: Int64 = 0
    """Epochs done."""
    total_epochs: Int64 = 0
    loss: Double = 0.0
    samples_per_second: Double = 0.0
    metrics: dict[str, Double] = {}
    """Further numbers, by name."""
    eta_seconds: Double = 0.0
    """Until the last step, at the present speed; 0 when unknown."""
    restart_epoch: Int32 = 0
    """How often the job's pods had been made anew, all together."""
