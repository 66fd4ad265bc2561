# Generated from the options in protos/ by `make gen`; do not edit.
"""Every context with its entities, and every fact."""

from __future__ import annotations

from paddlewheel.contracts.generated import cache_v1, cacheprogress_v1, datasets_v1, jobs_v1, measurements_v1, models_v1, objectstore_v1, progress_v1, serving_v1, triggers_v1
from paddlewheel.contracts.base import WireModel

ENTITIES: dict[str, tuple[str, ...]] = {
    'cache': ('Run', 'Node'),
    'cacheprogress': ('Run',),
    'datasets': ('SampleSet', 'SampleJob'),
    'jobs': ('Job',),
    'measurements': ('Revision',),
    'models': ('Model',),
    'objectstore': ('Object',),
    'progress': ('Job',),
    'serving': ('Service', 'Revision', 'Canary'),
    'triggers': ('Trigger',),
}
"""Context to its entities. The name of a fact begins with its entity."""

ROOTS: dict[str, str] = {
    'cache': 'pw.evt',
    'cacheprogress': 'pw.evt',
    'datasets': 'pw.evt',
    'jobs': 'pw.evt',
    'measurements': 'pw.evt',
    'models': 'pw.evt',
    'objectstore': 'pw.src',
    'progress': 'pw.evt',
    'serving': 'pw.evt',
    'triggers': 'pw.evt',
}
"""Context to the first two tokens of its subjects."""

EVENTS: dict[str, type[WireModel]] = {
    'paddlewheel.cache.v1.RunStarted': cache_v1.RunStarted,
    'paddlewheel.cache.v1.RunEnded': cache_v1.RunEnded,
    'paddlewheel.cache.v1.NodeMounted': cache_v1.NodeMounted,
    'paddlewheel.cache.v1.NodeUnmounted': cache_v1.NodeUnmounted,
    'paddlewheel.cacheprogress.v1.RunProgressed': cacheprogress_v1.RunProgressed,
    'paddlewheel.datasets.v1.SampleSetBound': datasets_v1.SampleSetBound,
    'paddlewheel.datasets.v1.SampleSetMounted': datasets_v1.SampleSetMounted,
    'paddlewheel.datasets.v1.SampleSetSynced': datasets_v1.SampleSetSynced,
    'paddlewheel.datasets.v1.SampleSetSyncFailed': datasets_v1.SampleSetSyncFailed,
    'paddlewheel.datasets.v1.SampleSetWarmed': datasets_v1.SampleSetWarmed,
    'paddlewheel.datasets.v1.SampleSetReady': datasets_v1.SampleSetReady,
    'paddlewheel.datasets.v1.SampleSetDegraded': datasets_v1.SampleSetDegraded,
    'paddlewheel.datasets.v1.SampleSetDeleted': datasets_v1.SampleSetDeleted,
    'paddlewheel.datasets.v1.SampleJobStarted': datasets_v1.SampleJobStarted,
    'paddlewheel.datasets.v1.SampleJobSucceeded': datasets_v1.SampleJobSucceeded,
    'paddlewheel.datasets.v1.SampleJobFailed': datasets_v1.SampleJobFailed,
    'paddlewheel.datasets.v1.SampleJobDeleted': datasets_v1.SampleJobDeleted,
    'paddlewheel.jobs.v1.JobAccepted': jobs_v1.JobAccepted,
    'paddlewheel.jobs.v1.JobGated': jobs_v1.JobGated,
    'paddlewheel.jobs.v1.JobStarting': jobs_v1.JobStarting,
    'paddlewheel.jobs.v1.JobStuck': jobs_v1.JobStuck,
    'paddlewheel.jobs.v1.JobRunning': jobs_v1.JobRunning,
    'paddlewheel.jobs.v1.JobRestarted': jobs_v1.JobRestarted,
    'paddlewheel.jobs.v1.JobSuspended': jobs_v1.JobSuspended,
    'paddlewheel.jobs.v1.JobResumed': jobs_v1.JobResumed,
    'paddlewheel.jobs.v1.JobSucceeded': jobs_v1.JobSucceeded,
    'paddlewheel.jobs.v1.JobFailed': jobs_v1.JobFailed,
    'paddlewheel.jobs.v1.JobDeleted': jobs_v1.JobDeleted,
    'paddlewheel.measurements.v1.RevisionMeasured': measurements_v1.RevisionMeasured,
    'paddlewheel.models.v1.ModelPublished': models_v1.ModelPublished,
    'paddlewheel.objectstore.v1.ObjectCreated': objectstore_v1.ObjectCreated,
    'paddlewheel.objectstore.v1.ObjectRemoved': objectstore_v1.ObjectRemoved,
    'paddlewheel.progress.v1.JobProgressed': progress_v1.JobProgressed,
    'paddlewheel.serving.v1.ServiceReady': serving_v1.ServiceReady,
    'paddlewheel.serving.v1.ServiceDegraded': serving_v1.ServiceDegraded,
    'paddlewheel.serving.v1.RevisionReady': serving_v1.RevisionReady,
    'paddlewheel.serving.v1.CanaryStarted': serving_v1.CanaryStarted,
    'paddlewheel.serving.v1.CanaryStepped': serving_v1.CanaryStepped,
    'paddlewheel.serving.v1.CanaryPromoted': serving_v1.CanaryPromoted,
    'paddlewheel.serving.v1.CanaryRolledBack': serving_v1.CanaryRolledBack,
    'paddlewheel.serving.v1.ServiceDeleted': serving_v1.ServiceDeleted,
    'paddlewheel.triggers.v1.TriggerFired': triggers_v1.TriggerFired,
    'paddlewheel.triggers.v1.TriggerFailed': triggers_v1.TriggerFailed,
}
"""Type (proto full name) to model class, for every fact of every context."""
