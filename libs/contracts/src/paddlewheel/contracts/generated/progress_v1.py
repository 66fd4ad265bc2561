# Generated from protos/paddlewheel/progress/v1/progress.proto by `make gen`; do not edit.
"""The progress of trainings, as their programs report it. Subject: pw.evt.progress.job.<fact>.v1.<namespace>.<uid>, where the
uid is that of the PaddleJob.

Progress has its own stream, which keeps the last fact of each job. In a common stream, thousands of jobs that report for
days would displace facts that must not be lost.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class JobProgressed(WireModel):
    """The progress of the training at ce-time, as its program reports it. Values that the program does not report are 0.
    Published at most once every ten seconds for each job. May be lost while the bus is unreachable. Each fact replaces all
    before it. Steps may decrease after a restart from a checkpoint. Do not wait for the last fact: JobSucceeded or JobFailed
    ends the job.
    """

    proto_name: ClassVar[str] = "paddlewheel.progress.v1.JobProgressed"

    job: ObjectRef | None = None
    step: Int64 = 0
    """Number of finished steps, counted over the whole training."""
    total_steps: Int64 = 0
    """Number of steps of the whole training."""
    epoch: Int64 = 0
    """Number of finished epochs of the training."""
    total_epochs: Int64 = 0
    """Number of epochs of the whole training."""
    loss: Double = 0.0
    samples_per_second: Double = 0.0
    metrics: dict[str, Double] = {}
    """Other numbers that the program reports, by name."""
    eta_seconds: Double = 0.0
    """Seconds until the last step at the present speed; 0 if it is unknown."""
    restart_epoch: Int32 = 0
    """Number of times that all pods of the job were replaced together before; 0 in the first epoch of the job."""
