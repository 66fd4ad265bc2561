"""The custom resources: models for controllers, schemas and admission rules for the API server."""

from paddlewheel.contracts.crds.kinds import (
    EVENTS_GROUP,
    GROUP,
    KINDS,
    PADDLE_JOB,
    PUBLISHED_KINDS,
    SAMPLE_JOB,
    SAMPLE_SET,
    TRIGGER,
    Kind,
)
from paddlewheel.contracts.crds.operations import (
    OPERATIONS,
    ClearOptions,
    Operation,
    RmrOptions,
    SyncOptions,
    WarmupOptions,
)
from paddlewheel.contracts.crds.options import JuiceFSMountOptions
from paddlewheel.contracts.crds.paddlejob import PaddleJobSpec, PaddleJobStatus, RoleSpec, RoleStatus
from paddlewheel.contracts.crds.parse import (
    parse_paddle_job_spec,
    parse_paddle_job_status,
    parse_sample_job_spec,
    parse_sample_job_status,
    parse_sample_set_spec,
    parse_sample_set_status,
    parse_trigger_spec,
    parse_trigger_status,
)
from paddlewheel.contracts.crds.samplejob import SampleJobSpec, SampleJobStatus
from paddlewheel.contracts.crds.sampleset import SampleSetSpec, SampleSetStatus
from paddlewheel.contracts.crds.trigger import TriggerSpec, TriggerStatus

__all__ = [
    "EVENTS_GROUP",
    "GROUP",
    "KINDS",
    "OPERATIONS",
    "PADDLE_JOB",
    "PUBLISHED_KINDS",
    "SAMPLE_JOB",
    "SAMPLE_SET",
    "TRIGGER",
    "ClearOptions",
    "JuiceFSMountOptions",
    "Kind",
    "Operation",
    "PaddleJobSpec",
    "PaddleJobStatus",
    "RmrOptions",
    "RoleSpec",
    "RoleStatus",
    "SampleJobSpec",
    "SampleJobStatus",
    "SampleSetSpec",
    "SampleSetStatus",
    "SyncOptions",
    "TriggerSpec",
    "TriggerStatus",
    "WarmupOptions",
    "parse_paddle_job_spec",
    "parse_paddle_job_status",
    "parse_sample_job_spec",
    "parse_sample_job_status",
    "parse_sample_set_spec",
    "parse_sample_set_status",
    "parse_trigger_spec",
    "parse_trigger_status",
]
