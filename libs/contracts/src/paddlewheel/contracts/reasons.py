"""Every reason of a condition, of a Kubernetes Event and of `status.reason`, with its meaning.

Conditions and Events use the same words. What the API server says goes into the message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """CamelCase, stable."""

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
    OWNED_BY_ANOTHER = "OwnedByAnother", "An object with a child's name belongs to somebody else."
    RECOVERED = "Recovered", "What failed before has succeeded."
    SCALED = "Scaled", "Children were created or deleted because the wanted number changed."

    # Specs, of every kind
    ACCEPTED = "Accepted", "The spec is valid."
    INVALID_SPEC = "InvalidSpec", "The spec can never work; the message names the field and the remedy."
    INVALID_STATUS = "InvalidStatus", "The status was written by something else and cannot be read."
    TERMINATING = "Terminating", "The object is being deleted."
    RELEASED_UNREAD = "ReleasedUnread", "A deleted object that cannot be read was released."
    INTERNAL_ERROR = "InternalError", "A bug of the controller, or of an agent; its log has the traceback."
    RECONCILED = "Reconciled", "A pass has succeeded after a failed one."

    # PaddleJob
    NOTHING_TO_WAIT_FOR = "NothingToWaitFor", "The job uses no SampleSet."
    SAMPLE_SET_READY = "SampleSetReady", "The job's SampleSet was ready."
    SAMPLE_SET_NOT_READY = "SampleSetNotReady", "Pods are created when the SampleSet is ready."
    SAMPLE_SET_NOT_MOUNTED = (
        "SampleSetNotMounted",
        "No node has the SampleSet mounted at the moment; pods are created when one has.",
    )
    SAMPLE_SET_NOT_FOUND = "SampleSetNotFound", "The SampleSet does not exist."
    SAMPLE_SET_UNREADABLE = "SampleSetUnreadable", "The SampleSet could not be read."
    SAMPLE_SET_FAILED = (
        "SampleSetFailed",
        "The SampleSet cannot become ready by itself; the message says why.",
    )
    HOST_PORTS_EXHAUSTED = (
        "HostPortsExhausted",
        "Every block of host ports is in use, or one node has too many pods of the job.",
    )
    FORMER_JOB_ENDING = (
        "FormerJobEnding",
        "Objects of a deleted job of the same name still exist; pods are created when they are gone.",
    )
    POD_STUCK_TERMINATING = (
        "PodStuckTerminating",
        "A deleted pod does not go, as on a lost node, and holds its name; the message has the remedy.",
    )
    PODS_PENDING = "PodsPending", "Pods are being created."
    UNSCHEDULABLE = (
        "Unschedulable",
        "A pod fits on no node; the message quotes the scheduler.",
    )
    NO_SCHEDULER = (
        "NoScheduler",
        "No scheduler has looked at a pod for 30 s; the message names the one that the pod asks for.",
    )
    GANG_UNSCHEDULABLE = (
        "GangUnschedulable",
        "The pods of a gang do not fit all together, so none starts; the message says how many find no room.",
    )
    GANG_NOT_ENQUEUED = (
        "GangNotEnqueued",
        "Volcano has not let the job's PodGroup in yet; pods are created when it has.",
    )
    GANG_TOO_LARGE = "GangTooLarge", "schedulingPolicy.minAvailable is more than the job has pods."
    WAITING_IN_QUEUE = (
        "WaitingInQueue",
        "Kueue has not admitted the job yet, or no longer; pods are created when it has.",
    )
    QUEUE_NOT_USABLE = (
        "QueueNotUsable",
        "Kueue cannot take the job, as when the queue that it names does not exist; the message quotes it.",
    )
    EVICTED_BY_QUEUE = "EvictedByQueue", "Kueue has withdrawn the job's admission, so its pods end."
    NOT_ADMITTED = (
        "NotAdmitted",
        "Kueue has not admitted what the job asks for now, so its pods end and it is queued anew.",
    )
    WITHOUT_EFFECT = (
        "WithoutEffect",
        "A field has no effect in this cluster; the message says why, and the remedy.",
    )
    IN_EFFECT = "InEffect", "Every field has its effect."
    SCHEDULING_GATED = "SchedulingGated", "A pod is held back by a scheduling gate, such as that of a queue."
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff", "A pod's image cannot be pulled."
    INVALID_IMAGE_NAME = "InvalidImageName", "A pod's image has a name that cannot be pulled."
    CONFIG_ERROR = "CreateContainerConfigError", "A pod names a ConfigMap or Secret that does not exist."
    FAILED_MOUNT = "FailedMount", "A volume of a pod cannot be mounted; the message quotes the kubelet."
    CONTAINER_CANNOT_START = "ContainerCannotStart", "A container cannot start; the message has the cause."
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff", "A container ends again and again."
    GATE_UNANSWERED = (
        "GateUnanswered",
        "The gate of a pod could not ask job-controller for 30 s, so the pod started without it.",
    )
    PODS_STARTING = "PodsStarting", "Pods run whose containers are not all ready."
    ALL_PODS_RUNNING = "AllPodsRunning", "Every pod is running and ready, or has succeeded."
    BESIDE_DATA = "BesideData", "Every worker runs on the node of its partition of the data set."
    SPILLED_OVER = (
        "SpilledOver",
        "Workers run on other nodes than that of their partition of the data set.",
    )
    COMPLETED = "Completed", "The work has succeeded."
    MODEL_NOT_REPORTED = (
        "ModelNotReported",
        "The job has succeeded, but its program did not report that it saved the model as outputModel asks;"
        " the message has the missing line.",
    )
    POD_FAILED = "PodFailed", "A pod has failed; the message has its exit code and last line."
    OOM_KILLED = "OOMKilled", "A container was ended because it used more memory than it may."
    EVICTED = "Evicted", "A pod was evicted from its node, as by a drain or by pressure on the node."
    PREEMPTED = "Preempted", "A pod had to leave its node to one of higher priority."
    NODE_LOST = "NodeLost", "The node of a pod was lost or shut down."
    REJECTED_BY_NODE = "RejectedByNode", "The kubelet refused a pod that was scheduled to its node."
    POD_DELETED = "PodDeleted", "A pod was deleted while the job ran."
    RESTARTING = "Restarting", "Pods are made anew; the message has the cause."
    WAITING_FOR_NODE = (
        "WaitingForNode",
        "A pod has failed, perhaps because the named node was lost: the Lease of the node decides.",
    )
    RESTARTED = "Restarted", "The job was restarted; the message has the cause."
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "The job was restarted as often as it may."
    FAILURE_RULE = "FailureRule", "A rule of failurePolicy ends the job at this failure."
    RESUMED = "Resumed", "spec.suspend was removed: the job goes on."
    SCALED_TO_ZERO = "ScaledToZero", "Every role has replicas 0: the job waits until it is scaled up."
    RESTART_REQUESTED = "RestartRequested", "The annotation paddlepaddle.org/restart asked for it."
    RESIZED = "Resized", "The number of workers was fitted to the room that there is."
    TEMPLATE_CHANGED = "TemplateChanged", "The pod template was changed: all pods are made anew."
    NO_PROGRESS = (
        "NoProgress",
        "The program has not reported progress for longer than usual; the message has its last step.",
    )
    PROGRESSING = "Progressing", "The program reports progress again, or the job does not run any more."
    TTL_EXPIRED = "TTLExpired", "ttlSecondsAfterFinished is over: the job was deleted."
    UNKNOWN_WORD = "UnknownWord", "The field has an unknown value; the message says how it is treated."
    WORD_KNOWN = "WordKnown", "The word was corrected."

    # SampleSet
    SECRET_NOT_FOUND = "SecretNotFound", "The Secret does not exist, or none is named."
    INVALID_SECRET = "InvalidSecret", "The Secret lacks a key, or a value is invalid."
    INVALID_SOURCE = "InvalidSource", "The source's address cannot be synced from."
    SECRET_NOT_SHARED = (
        "SecretNotShared",
        "The Secret is in another namespace, and does not name the object's as one that may use it.",
    )
    NAMESPACE_NOT_SERVED = (
        "NamespaceNotServed",
        "dataset-controller has no rights in the namespace; the message has the command that gives them.",
    )
    VOLUME_LAYOUT_CHANGED = (
        "VolumeLayoutChanged",
        "The set's volume is of an older version; the message says how it is recreated.",
    )
    SOURCE_NOT_ALLOWED = (
        "SourceNotAllowed",
        "The `file://` source is not below a directory that the operator has named for sources.",
    )
    CACHE_PATH_NOT_ALLOWED = (
        "CachePathNotAllowed",
        "A cache directory is not below a root that the operator has named for caches.",
    )
    CACHE_MOVED = (
        "CacheMoved",
        "The spec leaves out cache directories that nodes of the set use; the runtime stays as it is, and one"
        " that somebody has deleted is not made again.",
    )
    UNKNOWN_ENGINE = "UnknownEngine", "The cache engine is not known."
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
    NOT_NEEDED = "NotNeeded", "spec.noSync is set, or was when the first sync was due."
    WAITING_FOR_FIGURES = "WaitingForFigures", "No agent has measured the data yet."
    PARTIAL_READY = "PartialReady", "The data can be used, but not every partition is ready."
    HEALTHY = "Healthy", "Every mount answers, and so do its database, its store and its disks."
    MOUNT_FAILED = (
        "MountFailed",
        "The data cannot be mounted; the message quotes the client. It is tried again.",
    )
    STOPPED = "Stopped", "The agent has ended the mount on purpose, as when its pod is replaced."
    AGENT_ENDED = "AgentEnded", "The agent was killed, and the mount with it; the next one mounts again."
    PARTITION_MOVED = "PartitionMoved", "The partition is on another node now, and its old one has no mount."
    ENGINE_UNREACHABLE = (
        "EngineUnreachable",
        "The volume's database does not answer the agent that mounts it.",
    )
    WRONG_VOLUME = "WrongVolume", "The database holds another volume than the engine's Secret says."
    VOLUME_LOST = (
        "VolumeLost",
        "The database has lost the volume that the set was mounted from or that the store has data of, or"
        " holds another in its place.",
    )
    RECORD_UNREADABLE = (
        "RecordUnreadable",
        "The bus has a record of the set that cannot be read, so no empty database is formatted for the set.",
    )
    DATABASE_UNREACHABLE = (
        "DatabaseUnreachable",
        "The volume's database does not answer; reading and writing wait for it.",
    )
    MOUNT_SILENT = (
        "MountSilent",
        "The mount of the data on a node does not answer: it hangs, or its node is very busy. If that goes"
        " on, it is mounted again.",
    )
    STORE_UNREACHABLE = (
        "StoreUnreachable",
        "The object store does not answer; only what is cached can be read.",
    )
    CACHE_DISK_FULL = (
        "CacheDiskFull",
        "The disk of a cache is full, so that nothing is cached; others fill it.",
    )
    CACHE_DISK_FAILED = "CacheDiskFailed", "The disk of a cache fails or is read-only; the message quotes it."
    PARTITIONS_NOT_READY = "PartitionsNotReady", "Not every partition is ready."
    WARMING = "Warming", "The set's own warmup is running."
    WARMED = "Warmed", "The set's own warmup has succeeded."
    CACHE_CLEARED = "CacheCleared", "A SampleJob has emptied the cache since it was warmed."
    DATA_CHANGED = "DataChanged", "A SampleJob has copied files into the set since it was warmed."
    PARTLY_WARMED = (
        "PartlyWarmed",
        "A SampleJob has warmed a part of what spec.warmup asks for; the rest is not warm.",
    )
    CACHE_TOO_SMALL = (
        "CacheTooSmall",
        "The set is larger than its caches; the message says how much fits.",
    )
    CACHE_LARGE_ENOUGH = "CacheLargeEnough", "The caches can hold the whole set."
    WARMUP_FAILED = "WarmupFailed", "The set's own warmup has failed; it is tried again."
    READY = "Ready", "Every partition is mounted; the message says what is not warm."
    SCALING = "Scaling", "The number of partitions is being changed."
    STAGED_WRITES = (
        "StagedWrites",
        "Pods have written what is on nodes only, or may have; the nodes are kept until it is uploaded.",
    )
    WRITES_GIVEN_UP = (
        "WritesGivenUp",
        "What nodes have that the set has left is in no store, and the user has given it up.",
    )
    NOTHING_STAGED = "NothingStaged", "No node that the set has left has writes any more."
    IN_USE = "InUse", "Pods still use the data of a set that is being deleted, or whose runtime is to move."
    MOVING = "RuntimeMoving", "The runtime moves from the set's namespace to that of the release."

    # SampleJob
    UNKNOWN_OPERATION = "UnknownOperation", "The operation is not known."
    WAITING_FOR_SAMPLE_SET = "WaitingForSampleSet", "The SampleSet cannot take the work yet."
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
    RUN_FAILED = "RunFailed", "The run has failed without a reason of its own."
    OPTIONS_CHANGED = (
        "OptionsChanged",
        "The edited job, or the set's edited warmup, starts again with its new options.",
    )
    EDITS_IGNORED = "EditsIgnored", "The job has succeeded; a new run needs a new SampleJob."

    # Runs, as the cache runtime ends them
    FILES_FAILED = "FilesFailed", "Some files could not be done; the message names them."
    FILES_CHANGED = "FilesChanged", "The files changed while they were listed."
    PARTLY_CACHED = (
        "PartlyCached",
        "The warmup has succeeded, and the caches do not hold all of it, or not any more; the message has the"
        " share.",
    )
    INVALID_PATH = "InvalidPath", "A path leaves the data set or may not be used."
    PATH_NOT_FOUND = "PathNotFound", "A path does not exist in the data set."
    INVALID_FILTER = "InvalidFilter", "A pattern of include or exclude cannot be read; the message names it."
    SOURCE_EMPTY = "SourceEmpty", "The source has no objects."
    SOURCE_CHANGED = (
        "SourceChanged",
        "The source has less than was copied from it, so delete-dst deletes nothing.",
    )
    UNKNOWN_STRATEGY = "UnknownStrategy", "The strategy of the warmup is not known."
    SECRET_MISSING = "SecretMissing", "The keys have not reached the runtime pod in time."
    CREDENTIALS_MISSING = "CredentialsMissing", "The source needs keys, and its Secret has none."
    LISTING_FAILED = "ListingFailed", "The files or objects could not be listed."
    LISTING_RETRIED = "ListingRetried", "What is to be listed is away; the listing is tried again."
    SOURCE_SILENT = "SourceSilent", "The source does not answer; it is asked again."
    FILE_SYSTEM_FAILED = (
        "FileSystemFailed",
        "A file of the data, or a disk, cannot be read or written; the message quotes the kernel.",
    )
    WORK_LOST = "WorkLost", "Some work was published again and again, and no agent could read it."
    PARTITION_AWAY = "PartitionAway", "A partition is away; the message says who does its work."
    PARTITION_GONE = (
        "PartitionGone",
        "What only the agent of a partition could do was not done, because it is gone; the message names it.",
    )
    DELETE_FAILED = "DeleteFailed", "Files or objects could not be deleted after the sync."
    MOUNT_LOST = (
        "MountLost",
        "The mount of the data on a node was lost, or did not answer; it is mounted again.",
    )
    CELL_FAILED = "CellFailed", "The directory in which copies run could not be made, as when it is full."
    ENGINE_MISSING = "JuiceFsMissing", "The JuiceFS client could not be started."
    COPY_TIMEOUT = (
        "CopyTimeout",
        "Copying took longer than its bytes need at half of its bandwidth; it is tried again.",
    )
    PUBLISHING_RETRIED = (
        "PublishingRetried",
        "Work cannot be published, as when the stream that all runs share is full; it is tried again.",
    )
    ENGINE_TIMEOUT = "JuiceFsTimeout", "The JuiceFS client took too long."

    # PaddleService
    SERVING = "Serving", "Requests are answered."
    ENGINE_CHOSEN = "EngineChosen", "What serves was chosen; the message says why."
    SWITCHING_ENGINE = (
        "SwitchingEngine",
        "The service moves to another engine; the old one serves until the new is ready.",
    )
    KNATIVE_MISSING = "KnativeMissing", "spec.mode is Knative, which the cluster does not have."
    MODEL_NOT_PUBLISHED = "ModelNotPublished", "No version of the model was published yet."
    REVISION_STARTING = "RevisionStarting", "A new revision is not ready yet; the message says why."
    REVISION_FAILED = "RevisionFailed", "A revision cannot run, or has stopped to answer."
    ROUTE_PENDING = "RoutePending", "The gateway has not taken the route yet."
    ROUTE_REFUSED = "RouteRefused", "The gateway refuses the route; the message quotes it."
    ROUTED = "Routed", "The gateway leads requests to the service."
    SERVICE_ONLY = "ServiceOnly", "Without a gateway, only the cluster's own pods reach the service."
    CANNOT_SPLIT = "CannotSplit", "Requests cannot be spread over revisions; the message has the remedy."
    STEPPING = "Stepping", "A canary gets some requests and is watched."
    NO_FIGURES = (
        "NoFigures",
        "The gateway's figures cannot be read, or do not tell the latency, so a canary cannot be judged.",
    )
    ROLLOUT_COMPLETE = "RolloutComplete", "Nothing is being rolled out."
    CANARY_STARTED = "CanaryStarted", "A canary gets its first requests."
    CANARY_STEPPED = "CanaryStepped", "A canary's share was changed."
    CANARY_PROMOTED = "CanaryPromoted", "A canary gets all requests now."
    CANARY_ROLLED_BACK = "CanaryRolledBack", "A canary gets no requests any more."
    PROMOTED = "Promoted", "Every step went well, or the spec asks for no steps."
    PROMOTED_BY_HAND = "PromotedByHand", "The annotation asked for it."
    NOTHING_TO_COMPARE = "NothingToCompare", "The stable revision answered nothing."
    TOO_MANY_ERRORS = "TooManyErrors", "The canary failed more requests than the stable revision."
    TOO_SLOW = "TooSlow", "The canary was slower than the stable revision."
    METRIC_MISSING = "MetricMissing", "A metric of the limits was not measured yet; the message names it."
    METRIC_OUT_OF_LIMITS = "MetricOutOfLimits", "A measured metric of the canary is outside its limits."
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "The rollout made no progress within its deadline, or the job took longer than it may.",
    )
    ROLLED_BACK_BY_HAND = "RolledBackByHand", "The annotation asked for it."
    SERVED_BY_HAND = "ServedByHand", "An annotation holds the service to one revision."
    SUPERSEDED = "Superseded", "The spec asks for another revision."
    METRIC_UNAVAILABLE = (
        "MetricUnavailable",
        "The engine scales by another metric; the message says by which.",
    )
    AS_ASKED = "AsAsked", "Pods are added and removed as asked for."

    # Trigger
    ACTIVE = "Active", "The trigger waits for events."
    SUSPENDED = "Suspended", "spec.suspend is set; a suspended job has no pods."
    INVALID_TEMPLATE = "InvalidTemplate", "A $(...) name of the template has no value here."
    TEMPLATE_REFUSED = "TemplateRefused", "The API server refused what the template makes."
    SOURCE_NOT_GRANTED = "SourceNotGranted", "The namespace may not follow the object store that is named."
    INVALID_SCHEDULE = "InvalidSchedule", "A field of the cron expression, or the time zone, is unknown."
    MISSED_SCHEDULE = (
        "MissedSchedule",
        "A time of the schedule was dealt with after its deadline, and started nothing.",
    )
    NAME_TAKEN = "NameTaken", "An object of the name exists and was not created for this event."
    OWN_WORK = "OwnWork", "Events were skipped because the trigger's own work led to them."
    CHAIN_TOO_LONG = "ChainTooLong", "Events were skipped because too many triggers led to them."
    SPEC_CHANGED = "SpecChanged", "The spec has changed since events were skipped."
    EVENTS_DEFERRED = "EventsDeferred", "Events that could not be handled are kept, and tried again."
    DEFERRED_EVENTS_LOST = "DeferredEventsLost", "The bus has lost deferred events, which start nothing."
    ACKNOWLEDGED = "Acknowledged", "Somebody has said to know of it."
    BUS_UNAVAILABLE = "BusUnavailable", "The bus did not answer."


REASONS = frozenset(Reason)
"""To ask whether a word is one of ours."""
