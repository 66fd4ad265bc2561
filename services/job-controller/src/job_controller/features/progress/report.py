"""Reports of training programs: who may send one, what it may contain, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.contracts.crds import JobProgress
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.core.errors import Permanent

BODY_LIMIT = 4096
"""Bytes of one report."""
MAX_METRICS = 32
LONGEST_ETA_INTERVAL_SECONDS = 10 * 365 * 86400.0
"""The longest estimate in seconds that is shown."""

_EXACT = 2**53
"""JSON numbers above lose digits in many programs."""

Count = Annotated[int, Field(ge=0, le=_EXACT)]
Total = Annotated[int, Field(ge=1, le=_EXACT)]
MetricName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,64}$")]


class Report(BaseModel):
    """One report, in JSON. Unknown fields are ignored: the program may be newer than this service."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    step: Count | None = None
    total_steps: Total | None = None
    epoch: Count | None = None
    total_epochs: Total | None = None
    loss: float | None = None
    samples_per_second: Annotated[float, Field(ge=0)] | None = None
    metrics: Annotated[dict[MetricName, float], Field(max_length=MAX_METRICS)] = {}
    eta_seconds: Annotated[float, Field(ge=0)] | None = None
    interval_seconds: Annotated[float, Field(ge=0, le=LONGEST_ETA_INTERVAL_SECONDS)] | None = None

    @property
    def percent(self) -> str:
        """`42%`, "" when no total is known."""
        for done, total in ((self.step, self.total_steps), (self.epoch, self.total_epochs)):
            if done is not None and total is not None:
                return f"{min(100, 100 * done // total)}%"
        return ""

    def progress(self, at: datetime) -> JobProgress:
        """The value of `status.progress`. `at`: when the report was received."""
        known = self.eta_seconds is not None and self.eta_seconds <= LONGEST_ETA_INTERVAL_SECONDS
        eta = at + timedelta(seconds=self.eta_seconds or 0.0) if known else None
        return JobProgress(
            step=self.step,
            total_steps=self.total_steps,
            epoch=self.epoch,
            total_epochs=self.total_epochs,
            loss=self.loss,
            samples_per_second=self.samples_per_second,
            percent=self.percent,
            eta=seconds_stamp(eta) if eta else None,
            updated_at=seconds_stamp(at),
            interval_seconds=self.interval_seconds,
        )

    def fact(self, job: ObjectRef, restart_epoch: int) -> JobProgressed:
        """The fact for the bus."""
        return JobProgressed(
            job=job,
            step=self.step or 0,
            total_steps=self.total_steps or 0,
            epoch=self.epoch or 0,
            total_epochs=self.total_epochs or 0,
            loss=self.loss or 0.0,
            samples_per_second=self.samples_per_second or 0.0,
            metrics=dict(self.metrics),
            eta_seconds=self.eta_seconds or 0.0,
            restart_epoch=restart_epoch,
        )


_SAYING = ("step", "epoch", "loss", "samples_per_second", "metrics")


def parse_report(body: bytes) -> Report:
    """Raises Permanent, which names the field and what it may be."""
    try:
        report = Report.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise Permanent("InvalidReport", "; ".join(map(_fault, faults[:5]))) from error
    if not report.model_fields_set.intersection(_SAYING):
        raise Permanent("InvalidReport", f"body: give at least one of {', '.join(_SAYING)}")
    return report


def _fault(fault: Mapping[str, Any]) -> str:
    place = ".".join(str(part)[:64] for part in fault["loc"]) or "body"
    return f"{place}: {fault['msg']}"
