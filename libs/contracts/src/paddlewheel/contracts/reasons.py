"""Every reason of a condition, of a Kubernetes Event and of `status.reason`, with its meaning.

Conditions and Events use the same reasons. Errors of the API server are quoted in the message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason: a CamelCase word that does not change between releases, and its meaning."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    # Children, of every kind
    SUCCESSFUL_CREATE = "SuccessfulCreate", "Children were created."
    FAILED_CREATE = "FailedCreate", "A child, or a record on the bus, could not be created."
    FAILED_UPDATE = "FailedUpdate", "A child, or the object itself, could not be updated."
    FAILED_DELETE = "FailedDelete", "A child, or a record on the bus, could not be deleted."
    FAILED_GET = "FailedGet", "Something that the decision depends on could not be read."
    OWNED_BY_ANOTHER = "OwnedByAnother", "An object with the name of a child exists and has another owner."
    RECOVERED = "Recovered", "An action that failed before has succeeded."
    SCALED = "Scaled", "Children were created or deleted because their desired number changed."

    # Specs, of every kind
    ACCEPTED = "Accepted", "The spec is valid."
    INVALID_SPEC = "InvalidSpec", "The spec is invalid; the message names the field and what to do."
    INVALID_STATUS = "InvalidStatus", "Another program wrote the status, and it cannot be read."
    TERMINATING = "Terminating", "The object is being deleted."
    RELEASED_UNREAD = "ReleasedUnread", "A deleted object that cannot be read was released."
    INTERNAL_ERROR = "InternalError", "A bug in the controller or in an agent; its log has the traceback."
    RECONCILED = "Reconciled", "Reconciliation has succeeded after it failed."

    # PaddleJob
    NOTHING_TO_WAIT_FOR = "NothingToWaitFor", "The job uses no SampleSet."
    SAMPLE_SET_READY = (
        "SampleSetReady",
        "The job's SampleSet is ready, or was when the job's pods were created.",
    )
    SAMPLE_SET_NOT_READY = "SampleSetNotReady", "Pods are created when the SampleSet is ready."
    SAMPLE_SET_NOT_MOUNTED = (
        "SampleSetNotMounted",
        "No node has the SampleSet mounted at present; pods are created when one has.",
    )
    SAMPLE_SET_NOT_FOUND = "SampleSetNotFound", "The SampleSet does not exist."
    SAMPLE_SET_UNREADABLE = "SampleSetUnreadable", "The SampleSet could not be read."
    SAMPLE_SET_FAILED = (
        "SampleSetFailed",
        "The SampleSet cannot become ready without a change; the message has the cause.",
    )
    HOST_PORTS_EXHAUSTED = (
        "HostPortsExhausted",
        "All blocks of host ports are in use, or one node has too many pods of the job.",
    )
    FORMER_JOB_ENDING = (
        "FormerJobEnding",
        "Objects of a deleted job of the same name still exist; pods are created when they are gone.",
    )
    POD_STUCK_TERMINATING = (
        "PodStuckTerminating",
        "A deleted pod still exists, e.g. on a lost node, so its name is taken; the message describes what"
        " to do.",
    )
    PODS_PENDING = "PodsPending", "Pods are being created."
    UNSCHEDULABLE = (
        "Unschedulable",
        "A pod fits on no node; the message quotes the scheduler.",
    )
    NO_SCHEDULER = (
        "NoScheduler",
        "No scheduler has handled a pod for 30 s; the message names the scheduler that the pod requests.",
    )
    GANG_UNSCHEDULABLE = (
        "GangUnschedulable",
        "There is no room for all pods of a gang, so none starts; the message has the number of pods without"
        " room.",
    )
    GANG_NOT_ENQUEUED = (
        "GangNotEnqueued",
        "Volcano has not admitted the job's PodGroup yet; pods are created when it has.",
    )
    GANG_TOO_LARGE = (
        "GangTooLarge",
        "schedulingPolicy.minAvailable is more than the number of the job's pods.",
    )
    WAITING_IN_QUEUE = (
        "WaitingInQueue",
        "The job waits for admission by Kueue; pods are created when Kueue has admitted it.",
    )
    QUEUE_NOT_USABLE = (
        "QueueNotUsable",
        "Kueue cannot accept the job, e.g. because its queue does not exist; the message quotes Kueue.",
    )
    EVICTED_BY_QUEUE = "EvictedByQueue", "Kueue has withdrawn the job's admission, so its pods are deleted."
    NOT_ADMITTED = (
        "NotAdmitted",
        "Kueue has not admitted the job as it is now, so its pods are deleted and it is queued again.",
    )
    WITHOUT_EFFECT = (
        "WithoutEffect",
        "A field has no effect in this cluster; the message has the cause, and what to do.",
    )
    IN_EFFECT = "InEffect", "All fields have an effect."
    SCHEDULING_GATED = "SchedulingGated", "A scheduling gate, e.g. that of a queue, holds a pod back."
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff", "The image of a pod cannot be pulled."
    INVALID_IMAGE_NAME = "InvalidImageName", "The image of a pod has an invalid name."
    CONFIG_ERROR = "CreateContainerConfigError", "A pod refers to a ConfigMap or Secret that does not exist."
    FAILED_MOUNT = "FailedMount", "A volume of a pod cannot be mounted; the message quotes the kubelet."
    CONTAINER_CANNOT_START = "ContainerCannotStart", "A container cannot start; the message has the cause."
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff", "A container fails repeatedly."
    GATE_UNANSWERED = (
        "GateUnanswered",
        "The gate of a pod could not reach job-controller for 30 s, so the pod started without its answer.",
    )
    NO_GATE_ADDRESS = "NoGateAddress", "job-controller cannot look up its own address, which some pods need."
    PODS_STARTING = "PodsStarting", "Some pods have containers that are not ready."
    ALL_PODS_RUNNING = "AllPodsRunning", "Every pod is running and ready, or has succeeded."
    BESIDE_DATA = "BesideData", "Every worker runs on the node of its partition of the data set."
    SPILLED_OVER = (
        "SpilledOver",
        "Some workers do not run on the node of their partition of the data set.",
    )
    COMPLETED = "Completed", "The work has succeeded."
    MODEL_NOT_REPORTED = (
        "ModelNotReported",
        "The job has succeeded, but its program did not report that it saved the model of outputModel;"
        " the message has the line to add to the program.",
    )
    POD_FAILED = "PodFailed", "A pod has failed; the message has its exit code and last line of output."
    OOM_KILLED = "OOMKilled", "A container was killed because it used more memory than its limit."
    EVICTED = "Evicted", "A pod was evicted from its node, e.g. by a drain or by pressure on the node."
    PREEMPTED = "Preempted", "A pod was removed from its node to make room for a pod of higher priority."
    NODE_LOST = "NodeLost", "The node of a pod was lost or shut down."
    REJECTED_BY_NODE = "RejectedByNode", "The kubelet refused a pod that was scheduled to its node."
    POD_DELETED = "PodDeleted", "A pod was deleted while the job ran."
    RESTARTING = "Restarting", "Pods are being replaced; the message has the cause."
    WAITING_FOR_NODE = (
        "WaitingForNode",
        "A pod has failed, perhaps because the named node was lost: the Lease of the node decides.",
    )
    RESTARTED = "Restarted", "The job was restarted; the message has the cause."
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "The job has failed again after all allowed restarts."
    FAILURE_RULE = "FailureRule", "A rule of failurePolicy ended the job at this failure."
    RESUMED = "Resumed", "spec.suspend was removed, and the job continues."
    SCALED_TO_ZERO = "ScaledToZero", "All roles have replicas 0; the job waits until it is scaled up."
    RESTART_REQUESTED = "RestartRequested", "The annotation paddlepaddle.org/restart requested the restart."
    RESIZED = "Resized", "The number of workers was adjusted to the room in the cluster."
    TEMPLATE_CHANGED = "TemplateChanged", "The pod template was changed; all pods are replaced."
    NO_PROGRESS = (
        "NoProgress",
        "The program has not reported progress for longer than usual; the message has its last step.",
    )
    PROGRESSING = "Progressing", "The program reports progress again, or the job no longer runs."
    TTL_EXPIRED = "TTLExpired", "ttlSecondsAfterFinished has passed; the job was deleted."
    UNKNOWN_WORD = "UnknownWord", "The field has an unknown value; the message has the value that is used."
    WORD_KNOWN = "WordKnown", "The field has a known value again."

    # SampleSet
    SECRET_NOT_FOUND = "SecretNotFound", "The Secret does not exist, or the spec has no reference to one."
    INVALID_SECRET = "InvalidSecret", "A key of the Secret is missing, or a value is invalid."
    INVALID_SOURCE = "InvalidSource", "The source's address is invalid."
    SECRET_NOT_SHARED = (
        "SecretNotShared",
        "The Secret is in another namespace, and its annotation shared-with does not list the object's"
        " namespace.",
    )
    NAMESPACE_NOT_SERVED = (
        "NamespaceNotServed",
        "dataset-controller has no rights in the namespace; the message has the command that grants them.",
    )
    VOLUME_LAYOUT_CHANGED = (
        "VolumeLayoutChanged",
        "The set's volume was created by an older version; the message describes how to recreate it.",
    )
    SOURCE_NOT_ALLOWED = (
        "SourceNotAllowed",
        "The `file://` source is not below a directory that the chart allows for sources.",
    )
    CACHE_PATH_NOT_ALLOWED = (
        "CachePathNotAllowed",
        "A cache directory is not below a directory that the chart allows for caches.",
    )
    CACHE_MOVED = (
        "CacheMoved",
        "The spec no longer contains cache directories that nodes of the set use. The change is not applied:"
        " the runtime stays as it is, and is not created again if it was deleted.",
    )
    UNKNOWN_ENGINE = "UnknownEngine", "The cache engine is unknown."
    WAITING_FOR_VOLUME = "WaitingForVolume", "The claim is not bound yet."
    BOUND = "Bound", "The claim is bound."
    WAITING_FOR_MOUNT = "WaitingForMount", "No partition has mounted the data yet."
    NO_PARTITION_MOUNTED = "NoPartitionMounted", "No partition has the data mounted."
    MOUNTED = "Mounted", "At least one partition has the data mounted."
    WAITING_FOR_SYNC = "WaitingForSync", "The first sync has not begun yet."
    SYNCING = "Syncing", "The first sync is running."
    SYNC_FAILED = (
        "SyncFailed",
        "The first sync has failed; it starts again when the source or its Secret changes.",
    )
    SYNCED = "Synced", "The first sync has succeeded."
    NOT_NEEDED = "NotNeeded", "spec.noSync is true, or was true when the first sync was due."
    WAITING_FOR_FIGURES = "WaitingForFigures", "No agent has measured the data yet."
    PARTIAL_READY = "PartialReady", "The data can be used, but not every partition is ready."
    HEALTHY = "Healthy", "All mounts respond, and so do their database, their store and their disks."
    MOUNT_FAILED = (
        "MountFailed",
        "The data cannot be mounted; the message quotes the client. The mount is tried again.",
    )
    STOPPED = "Stopped", "The agent has ended the mount on purpose, e.g. because its pod is replaced."
    AGENT_ENDED = "AgentEnded", "The agent was killed, and its mount with it; the next agent mounts again."
    PARTITION_MOVED = "PartitionMoved", "The partition has moved to another node; the old node has no mount."
    ENGINE_UNREACHABLE = (
        "EngineUnreachable",
        "The volume's database does not answer the agent that mounts the volume.",
    )
    WRONG_VOLUME = "WrongVolume", "The database contains another volume than the engine's Secret names."
    VOLUME_LOST = (
        "VolumeLost",
        "The database does not contain the volume that the set was mounted from, or whose data is in the"
        " store; it is empty or contains another volume.",
    )
    RECORD_UNREADABLE = (
        "RecordUnreadable",
        "A record of the set on the bus cannot be read, so an empty database is not formatted for the set.",
    )
    DATABASE_UNREACHABLE = (
        "DatabaseUnreachable",
        "The volume's database does not answer; reads and writes wait for it.",
    )
    MOUNT_SILENT = (
        "MountSilent",
        "The mount of the data on a node does not respond: it hangs, or its node is very busy. If this"
        " continues, the data is mounted again.",
    )
    STORE_UNREACHABLE = (
        "StoreUnreachable",
        "The object store does not answer; only cached data can be read.",
    )
    CACHE_DISK_FULL = (
        "CacheDiskFull",
        "Other files fill the disk of a cache, so nothing is cached on it.",
    )
    CACHE_DISK_FAILED = "CacheDiskFailed", "The disk of a cache fails or is read-only; the message quotes it."
    PARTITIONS_NOT_READY = "PartitionsNotReady", "Not every partition is ready."
    WARMING = "Warming", "The set's own warmup is running."
    WARMED = "Warmed", "The set's own warmup has succeeded."
    CACHE_CLEARED = "CacheCleared", "A SampleJob has emptied the cache since it was warmed."
    DATA_CHANGED = "DataChanged", "A SampleJob has copied files into the set since it was warmed."
    PARTLY_WARMED = (
        "PartlyWarmed",
        "A SampleJob has warmed only a part of the files of spec.warmup; the rest is not warm.",
    )
    CACHE_TOO_SMALL = (
        "CacheTooSmall",
        "The set is larger than its caches; the message has the share that fits.",
    )
    CACHE_LARGE_ENOUGH = "CacheLargeEnough", "The caches can hold the whole set."
    WARMUP_FAILED = "WarmupFailed", "The set's own warmup has failed; it is tried again."
    READY = "Ready", "All partitions are mounted; the message describes any part that is not warm."
    SCALING = "Scaling", "The number of partitions is being changed."
    STAGED_WRITES = (
        "StagedWrites",
        "Pods have written data, or may have, that is on nodes only; the nodes keep their cache until it is"
        " uploaded.",
    )
    WRITES_GIVEN_UP = (
        "WritesGivenUp",
        "Nodes that the set has left have written data that is not in the store, and the user has given it"
        " up.",
    )
    NOTHING_STAGED = "NothingStaged", "Nodes that the set has left have no data that is not in the store."
    IN_USE = "InUse", "Pods still use the data of a set that is being deleted, or whose runtime will move."
    MOVING = "RuntimeMoving", "The runtime is moving from the set's namespace to that of the release."

    # SampleJob
    UNKNOWN_OPERATION = "UnknownOperation", "The operation is unknown."
    WAITING_FOR_SAMPLE_SET = "WaitingForSampleSet", "The SampleSet is not ready for the operation yet."
    WAITING_FOR_JOBS = "WaitingForJobs", "The jobs of spec.after have not all succeeded yet."
    DEPENDENCY_FAILED = (
        "DependencyFailed",
        "A job of spec.after has failed, was cancelled or does not exist, so this one was not run.",
    )
    WAITING_FOR_TURN = (
        "WaitingForTurn",
        "Another operation on the set has to end first; the message names it.",
    )
    CANCELLING_OTHERS = "CancellingOthers", "The set's other runs are being cancelled first."
    RUN_REQUESTED = "RunRequested", "The run was requested; no agent has started it yet."
    RUNNING = "Running", "An agent has started the run."
    CANCELLED = "Cancelled", "The run, or the set's other runs, were cancelled."
    RUN_FAILED = "RunFailed", "The run has failed for an unknown reason."
    OPTIONS_CHANGED = (
        "OptionsChanged",
        "The options of the job, or of the set's warmup, were edited; it starts again with the new ones.",
    )
    EDITS_IGNORED = "EditsIgnored", "The job has succeeded; a new run needs a new SampleJob."

    # Runs, with reasons from the cache runtime
    FILES_FAILED = "FilesFailed", "Some files failed; the message names them."
    FILES_CHANGED = "FilesChanged", "The files changed while they were listed."
    PARTLY_CACHED = (
        "PartlyCached",
        "The warmup has succeeded, but the caches do not hold all of its files; the message has the share.",
    )
    INVALID_PATH = "InvalidPath", "A path leads out of the data set, or is not allowed."
    PATH_NOT_FOUND = "PathNotFound", "A path does not exist in the data set."
    INVALID_FILTER = "InvalidFilter", "A pattern of include or exclude cannot be read; the message names it."
    SOURCE_EMPTY = "SourceEmpty", "The source has no objects."
    SOURCE_CHANGED = (
        "SourceChanged",
        "The source has fewer objects than were copied from it, so delete-dst deletes nothing.",
    )
    NO_SAMPLES = "NoSamples", "None of the files is a sample of the sampler; the message has the extensions."
    UNKNOWN_STRATEGY = "UnknownStrategy", "The strategy of the warmup is unknown."
    SECRET_MISSING = "SecretMissing", "The keys have not been mounted in the runtime pod in time."
    CREDENTIALS_MISSING = "CredentialsMissing", "The source needs keys, and its Secret has none."
    LISTING_FAILED = "ListingFailed", "The files or objects could not be listed."
    LISTING_RETRIED = (
        "ListingRetried",
        "The files or objects are unavailable at present; the listing is tried again.",
    )
    SOURCE_SILENT = "SourceSilent", "The source does not answer; the request is tried again."
    FILE_SYSTEM_FAILED = (
        "FileSystemFailed",
        "A file of the data, or a disk, cannot be read or written; the message quotes the kernel.",
    )
    WORK_LOST = "WorkLost", "Some work was published several times, and no agent could read it."
    PARTITION_AWAY = (
        "PartitionAway",
        "A partition is unavailable; the message names the partition that does its work.",
    )
    PARTITION_GONE = (
        "PartitionGone",
        "Work that only one partition can do was not done, because the partition is gone; the message names"
        " it.",
    )
    DELETE_FAILED = "DeleteFailed", "Files or objects could not be deleted after the sync."
    MOUNT_LOST = (
        "MountLost",
        "The mount of the data on a node was lost, or did not respond; the data is mounted again.",
    )
    CELL_FAILED = (
        "CellFailed",
        "The working directory of a copy could not be created, e.g. because its disk is full.",
    )
    ENGINE_MISSING = "JuiceFsMissing", "The JuiceFS client could not be started."
    COPY_TIMEOUT = (
        "CopyTimeout",
        "A copy took longer than its size requires at half of the bandwidth; it is tried again.",
    )
    PUBLISHING_RETRIED = (
        "PublishingRetried",
        "Work cannot be published, e.g. because the stream of all runs is full; it is tried again.",
    )
    ENGINE_TIMEOUT = "JuiceFsTimeout", "The JuiceFS client took too long."

    # PaddleService
    SERVING = "Serving", "The service answers requests."
    ENGINE_CHOSEN = "EngineChosen", "The engine that serves was chosen; the message has the cause."
    SWITCHING_ENGINE = (
        "SwitchingEngine",
        "The service moves to another engine; the old one serves until the new one is ready.",
    )
    KNATIVE_MISSING = "KnativeMissing", "spec.mode is Knative, which the cluster does not have."
    MODEL_NOT_PUBLISHED = "ModelNotPublished", "No version of the model has been published yet."
    REVISION_STARTING = "RevisionStarting", "A new revision is not ready yet; the message has the cause."
    REVISION_FAILED = "RevisionFailed", "A revision cannot run, or no longer answers requests."
    ROUTE_PENDING = "RoutePending", "The gateway has not accepted the route yet."
    ROUTE_REFUSED = "RouteRefused", "The gateway refuses the route; the message quotes the gateway."
    ROUTED = "Routed", "The gateway routes requests to the service."
    SERVICE_ONLY = "ServiceOnly", "There is no gateway, so only pods of the cluster can reach the service."
    CANNOT_SPLIT = (
        "CannotSplit",
        "Requests cannot be split between revisions; the message describes what to do.",
    )
    STEPPING = "Stepping", "A canary gets a part of the requests, and its figures are compared."
    NO_FIGURES = (
        "NoFigures",
        "The gateway's metrics cannot be read, or have no latency, so a canary cannot be judged.",
    )
    ROLLOUT_COMPLETE = "RolloutComplete", "Nothing is being rolled out."
    CANARY_STARTED = "CanaryStarted", "A canary gets its first requests."
    CANARY_STEPPED = "CanaryStepped", "A canary's share of requests was changed."
    CANARY_PROMOTED = "CanaryPromoted", "A canary gets all requests now."
    CANARY_ROLLED_BACK = "CanaryRolledBack", "A canary was rolled back and gets no requests."
    PROMOTED = "Promoted", "All steps have succeeded, or the spec has no steps."
    PROMOTED_BY_HAND = "PromotedByHand", "An annotation requested the promotion."
    NOTHING_TO_COMPARE = "NothingToCompare", "The stable revision answered no requests."
    TOO_MANY_ERRORS = "TooManyErrors", "The canary failed more requests than the stable revision."
    TOO_SLOW = "TooSlow", "The canary was slower than the stable revision."
    METRIC_MISSING = (
        "MetricMissing",
        "A metric of the limits has not been measured yet; the message names it.",
    )
    METRIC_OUT_OF_LIMITS = "MetricOutOfLimits", "A measured metric of the canary is outside its limits."
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "The rollout made no progress within its deadline, or the job did not end within its deadline.",
    )
    ROLLED_BACK_BY_HAND = "RolledBackByHand", "An annotation requested the rollback."
    SERVED_BY_HAND = "ServedByHand", "An annotation selects the revision that serves."
    SUPERSEDED = "Superseded", "The spec was changed and requires another revision."
    METRIC_UNAVAILABLE = (
        "MetricUnavailable",
        "The engine does not support the metric and scales by another one; the message names it.",
    )
    AS_ASKED = "AsAsked", "Pods are added and removed as spec.service requires."

    # Trigger
    ACTIVE = "Active", "The trigger waits for events."
    SUSPENDED = "Suspended", "spec.suspend is set; a suspended job has no pods."
    INVALID_TEMPLATE = "InvalidTemplate", "The template contains a name $(...) that has no value."
    TEMPLATE_REFUSED = "TemplateRefused", "The API server refused the object that the template renders."
    SOURCE_NOT_GRANTED = (
        "SourceNotGranted",
        "The chart does not allow the namespace to follow this object store.",
    )
    INVALID_SCHEDULE = "InvalidSchedule", "A field of the cron expression, or the time zone, is invalid."
    MISSED_SCHEDULE = (
        "MissedSchedule",
        "The deadline of a scheduled time had passed, so the trigger created nothing for it.",
    )
    NAME_TAKEN = "NameTaken", "An object with the name exists that was not created for this event."
    OWN_WORK = "OwnWork", "Events were skipped because jobs of this trigger led to them."
    CHAIN_TOO_LONG = "ChainTooLong", "Events were skipped because too many triggers led to them."
    SPEC_CHANGED = "SpecChanged", "The spec has changed since events were skipped."
    EVENTS_DEFERRED = "EventsDeferred", "Events that could not be handled are kept and tried again."
    DEFERRED_EVENTS_LOST = (
        "DeferredEventsLost",
        "The bus has lost deferred events; nothing is created for them.",
    )
    ACKNOWLEDGED = "Acknowledged", "A user has acknowledged the lost events with the trigger's annotation."
    BUS_UNAVAILABLE = "BusUnavailable", "The bus did not answer."


REASONS = frozenset(Reason)
"""All reasons, to test whether a word is one of them."""
