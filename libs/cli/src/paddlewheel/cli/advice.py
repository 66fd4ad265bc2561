"""Advice about the reason of a job, a data set or a run."""

from __future__ import annotations

from collections.abc import Mapping

from paddlewheel.contracts.reasons import Reason

SEE_MESSAGE = "see the message"
_BY_ITSELF = "nothing: it continues by itself"
_SEE_THE_PODS = (
    "see why they are not ready: kubectl -n {namespace} describe pods -l paddlepaddle.org/paddlejob={job}"
)
_SEE_THE_LOG = "see its output: paddlewheel logs {key}"
_ALLOW = "remove what refuses it, such as a quota, a right or a webhook; it is tried again within a minute"
_MAKE_ROOM = (
    "add or free nodes, or lower resources.requests; with worker.requests below worker.replicas"
    " the job trains with as many workers as fit"
)
_RAISE_LIMIT = "fix the cause, delete the job and create it again; spec.backoffLimit allows more restarts"

ADVICE: Mapping[Reason, str] = {
    Reason.INVALID_SPEC: "correct the fields that are named: kubectl -n {namespace} edit pdj {job}",
    Reason.INTERNAL_ERROR: "report it with the log of job-controller",
    Reason.TERMINATING: _BY_ITSELF,
    Reason.COMPLETED: "nothing: it has succeeded",
    Reason.MODEL_NOT_REPORTED: "add the line in the message to the program and run the job again, or name the"
    " files in the PaddleService: spec.default.model.uri",
    Reason.ALL_PODS_RUNNING: "nothing: it is running",
    Reason.PODS_PENDING: f"nothing, while they are new; else {_SEE_THE_PODS}",
    Reason.PODS_STARTING: f"nothing, while they are new; else {_SEE_THE_PODS}",
    Reason.RESTARTING: _BY_ITSELF,
    Reason.WAITING_FOR_NODE: _BY_ITSELF,
    Reason.FORMER_JOB_ENDING: _BY_ITSELF,
    Reason.POD_STUCK_TERMINATING: "remove what the message names",
    # Gates
    Reason.SUSPENDED: "paddlewheel job resume {key}",
    Reason.SCALED_TO_ZERO: "paddlewheel job scale {key} --workers 1",
    Reason.SAMPLE_SET_NOT_FOUND: "create the SampleSet, or correct spec.sampleSetRef.name",
    Reason.SAMPLE_SET_NOT_READY: "nothing, while it syncs; its state: kubectl -n {namespace} get samplesets",
    Reason.SAMPLE_SET_NOT_MOUNTED: (
        "nothing, while it is mounted again; else: kubectl -n {namespace} describe sampleset"
    ),
    Reason.SAMPLE_SET_FAILED: "fix the SampleSet: kubectl -n {namespace} describe sampleset",
    Reason.SAMPLE_SET_UNREADABLE: "check that job-controller reaches the API server and may get samplesets",
    Reason.HOST_PORTS_EXHAUSTED: "spread the pods over nodes, or widen job-controller's PORT_RANGE_END",
    Reason.GANG_UNSCHEDULABLE: _MAKE_ROOM,
    Reason.GANG_NOT_ENQUEUED: "see the queue of the PodGroup: kubectl -n {namespace} describe podgroup {job}",
    Reason.WAITING_IN_QUEUE: (
        "nothing, while others use the quota or the queue is held; its state:"
        " kubectl -n {namespace} describe workloads.kueue.x-k8s.io paddlejob-{job}"
    ),
    Reason.QUEUE_NOT_USABLE: (
        "correct the job's label kueue.x-k8s.io/queue-name, or create the queue that is named:"
        " kubectl -n {namespace} get localqueues.kueue.x-k8s.io"
    ),
    Reason.GANG_TOO_LARGE: "lower spec.schedulingPolicy.minAvailable to the number of pods, or remove it",
    # Pods
    Reason.UNSCHEDULABLE: _MAKE_ROOM,
    Reason.NO_SCHEDULER: "start the scheduler that is named, or correct schedulerName in the template",
    Reason.SCHEDULING_GATED: "nothing, while a queue holds it; else remove the pod's schedulingGates",
    Reason.IMAGE_PULL_BACK_OFF: (
        "correct the image's name or tag, push it, or name a Secret for its registry in imagePullSecrets"
    ),
    Reason.INVALID_IMAGE_NAME: "correct the image's name in the template",
    Reason.CONFIG_ERROR: "create the ConfigMap or Secret that is named",
    Reason.GATE_UNANSWERED: "let pods of the namespace connect to the Service job-controller",
    Reason.NO_GATE_ADDRESS: "check Service job-controller, and the DNS of the pod of job-controller",
    Reason.FAILED_MOUNT: "create what is named, or correct the volume in the template",
    Reason.CONTAINER_CANNOT_START: "correct the command, mounts or security context of the template",
    Reason.CRASH_LOOP_BACK_OFF: f"fix the program; {_SEE_THE_LOG}",
    Reason.NO_PROGRESS: f"{_SEE_THE_LOG}; paddlewheel job restart {{key}} begins from the last checkpoint",
    # Children
    Reason.FAILED_CREATE: _ALLOW,
    Reason.FAILED_UPDATE: _ALLOW,
    Reason.FAILED_DELETE: _ALLOW,
    Reason.FAILED_GET: _ALLOW,
    Reason.OWNED_BY_ANOTHER: "delete the object that is named, or give the job another name",
    # Ends
    Reason.POD_FAILED: f"{_SEE_THE_LOG}; {_RAISE_LIMIT}",
    Reason.OOM_KILLED: "raise resources.limits.memory of the template, and create the job again",
    Reason.EVICTED: _RAISE_LIMIT,
    Reason.PREEMPTED: "give the job a higher priorityClassName, and create it again",
    Reason.NODE_LOST: _RAISE_LIMIT,
    Reason.MOUNT_LOST: f"see why the data was not mounted: paddlewheel data explain; {_RAISE_LIMIT}",
    Reason.REJECTED_BY_NODE: "see the node that is named: kubectl describe node",
    Reason.POD_DELETED: _RAISE_LIMIT,
    Reason.BACKOFF_LIMIT_EXCEEDED: f"{_SEE_THE_LOG}; {_RAISE_LIMIT}",
    Reason.FAILURE_RULE: f"{_SEE_THE_LOG}; fix the cause, then delete the job and create it again",
    Reason.DEADLINE_EXCEEDED: "raise spec.activeDeadlineSeconds, and create the job again",
}
"""Advice by the reason of a PaddleJob. `{job}` is its name, `{namespace}` its namespace, `{key}` both."""

_NO_ROOM = {
    "Insufficient ": _MAKE_ROOM,
    "untolerated taint": "tolerate the taints that are named",
    "affinity/selector": "correct nodeSelector or affinity of the template, or label a node",
    "anti-affinity rules": "loosen podAntiAffinity of the template, or add nodes",
    "free ports": "remove hostPort from the template, or add nodes: each node has a port only once",
    "persistentvolumeclaim": "create the PersistentVolumeClaim that is named, or correct the template",
}
_NO_MEMORY = {"(OOMKilled": ADVICE[Reason.OOM_KILLED]}
_BY_WORDS: Mapping[Reason, Mapping[str, str]] = {
    Reason.UNSCHEDULABLE: _NO_ROOM,
    Reason.GANG_UNSCHEDULABLE: _NO_ROOM,
    Reason.BACKOFF_LIMIT_EXCEEDED: _NO_MEMORY,
    Reason.FAILURE_RULE: _NO_MEMORY,
}
"""Advice by the words that the scheduler or the kubelet uses in the message."""


_LET_GO = (
    "set spec.sampleSetRef.placement to Preferred, so that workers may run on other nodes than their data"
)


def advice_for(reason: Reason, message: str, *, is_placed: bool = False) -> str:
    """Advice for every cause in the message.

    Args:
        is_placed: the workers may run only on the nodes of their data.
    """
    general = ADVICE.get(reason, SEE_MESSAGE)
    named = [advice for words, advice in _BY_WORDS.get(reason, {}).items() if words in message]
    placed = [_LET_GO] if is_placed and _BY_WORDS.get(reason) is _NO_ROOM else []
    return "; ".join((*(named or [general]), *placed))


_SEE_THE_RUNTIME = "kubectl describe pods -A -l paddlepaddle.org/sampleset={namespace}.{name}"
_EDIT = "kubectl -n {namespace} edit {object}"
_EDIT_SET = "kubectl -n {namespace} edit sampleset {name}"
_SHOW = "paddlewheel data show {key}"
_WHILE_NEW = f"nothing, while pods start; else: {_SEE_THE_RUNTIME}"
_ANOTHER_DISK = "recreate the set with another in spec.cache.levels"
DATA_ADVICE: Mapping[Reason, str] = {
    Reason.INVALID_SPEC: f"correct the fields that are named: {_EDIT}",
    Reason.INTERNAL_ERROR: "report it with the log of dataset-controller, or of the pod that is named",
    Reason.TERMINATING: _BY_ITSELF,
    Reason.SECRET_NOT_FOUND: "create the Secret that is named, or correct spec.secretRef",
    Reason.INVALID_SECRET: "correct the Secret; it is read again immediately",
    Reason.SECRET_NOT_SHARED: (
        "have the owner of the Secret share it, with the command that is named, or name one of {namespace}"
    ),
    Reason.NAMESPACE_NOT_SERVED: "have an administrator run the command that is named",
    Reason.INVALID_SOURCE: f"correct the address of the source: {_EDIT}",
    Reason.SOURCE_NOT_ALLOWED: (
        "use an object store or an allowed directory, or have the operator add the directory to the chart's"
        " datasetController.localSources"
    ),
    Reason.CACHE_PATH_NOT_ALLOWED: (
        "name a directory below an allowed root, or have the operator add its root to the chart's"
        " datasetController.cacheRoots"
    ),
    Reason.CACHE_MOVED: f"put spec.cache back, or recreate the set as the message describes: {_EDIT_SET}",
    Reason.UNKNOWN_ENGINE: f"set spec.csi.driver to a known engine, or leave it out: {_EDIT}",
    Reason.VOLUME_LAYOUT_CHANGED: "delete the set as the message describes, and apply its manifest again",
    Reason.WAITING_FOR_VOLUME: "nothing, while it is new; else: kubectl -n {namespace} describe pvc {name}",
    Reason.WAITING_FOR_MOUNT: f"nothing, while it is new; else: {_SEE_THE_RUNTIME}",
    Reason.WAITING_FOR_SYNC: f"nothing, while it is new; else: {_SEE_THE_RUNTIME}",
    Reason.WAITING_FOR_FIGURES: f"nothing, while data is counted; else: {_SEE_THE_RUNTIME}",
    Reason.BOUND: _WHILE_NEW,
    Reason.MOUNTED: _WHILE_NEW,
    Reason.NO_PARTITION_MOUNTED: f"see why: {_SEE_THE_RUNTIME}",
    Reason.PARTITIONS_NOT_READY: _WHILE_NEW,
    Reason.PARTIAL_READY: f"nothing: it can be used; see what is missing: {_SEE_THE_RUNTIME}",
    Reason.SYNC_FAILED: f"correct the source or its Secret, or set spec.noSync: {_EDIT}",
    Reason.WARMUP_FAILED: "fix the problem in the message; it is tried again",
    Reason.SYNCING: f"nothing: {_SHOW} has its progress",
    Reason.WARMING: f"nothing: {_SHOW} has its progress",
    Reason.READY: "nothing: it is ready",
    Reason.CACHE_CLEARED: "nothing, or: paddlewheel data warm {key}",
    Reason.DATA_CHANGED: "nothing, or: paddlewheel data warm {key}",
    Reason.PARTLY_WARMED: "nothing, or: paddlewheel data warm {key}",
    Reason.CACHE_TOO_SMALL: f"nothing, or give the set more partitions or a larger cacheSize: {_EDIT_SET}",
    Reason.CACHE_LARGE_ENOUGH: "nothing: it fits",
    Reason.PARTLY_CACHED: (
        f"nothing, or give the set more partitions or a larger cacheSize ({_EDIT_SET}), and then:"
        " paddlewheel data warm {key}"
    ),
    Reason.SCALING: _BY_ITSELF,
    Reason.STAGED_WRITES: (
        "nothing, while it is uploaded; check the nodes and the object store, or discard the writes with"
        " the command that is named"
    ),
    Reason.WRITES_GIVEN_UP: "nothing, or remove the node from the annotation before the set continues",
    Reason.NOTHING_STAGED: "nothing: it is uploaded",
    Reason.IN_USE: "delete the pods that are named, or let them end",
    Reason.MOVING: _BY_ITSELF,
    # Children
    Reason.FAILED_CREATE: _ALLOW,
    Reason.FAILED_UPDATE: _ALLOW,
    Reason.FAILED_DELETE: _ALLOW,
    Reason.FAILED_GET: _ALLOW,
    Reason.OWNED_BY_ANOTHER: "delete the object that is named, or give the data set another name",
    # Runs
    Reason.SAMPLE_SET_NOT_FOUND: "create the SampleSet that is named, or correct spec.sampleSetRef.name",
    Reason.UNKNOWN_OPERATION: "delete it, and create it again with a spec.type that is named",
    Reason.WAITING_FOR_SAMPLE_SET: "see what its data set waits for: paddlewheel data explain {key}",
    Reason.WAITING_FOR_JOBS: f"nothing, while they run: {_SHOW} has their progress",
    Reason.DEPENDENCY_FAILED: f"fix the problem in the message, and run both again: {_SHOW} has all runs",
    Reason.WAITING_FOR_TURN: (
        f"nothing, or cancel what it waits for with paddlewheel data cancel: {_SHOW} has all runs"
    ),
    Reason.CANCELLING_OTHERS: _BY_ITSELF,
    Reason.OPTIONS_CHANGED: _BY_ITSELF,
    Reason.RUN_REQUESTED: f"nothing, while it is new; else: {_SEE_THE_RUNTIME}",
    Reason.RUNNING: f"nothing: {_SHOW} has its progress",
    Reason.COMPLETED: "nothing: it has succeeded",
    Reason.RUN_FAILED: f"see why, and run it again: {_SEE_THE_RUNTIME}",
    Reason.FILES_FAILED: "fix the problem in the message, and run it again: finished files are skipped",
    Reason.FILES_CHANGED: "run it again when no program writes to the data",
    Reason.INVALID_PATH: "correct the path that is named",
    Reason.PATH_NOT_FOUND: "correct the path that is named",
    Reason.UNKNOWN_STRATEGY: "use a strategy that is named",
    Reason.INVALID_FILTER: "correct the pattern that is named, and run it again",
    Reason.SOURCE_EMPTY: "correct the source's prefix, or upload first",
    Reason.SOURCE_CHANGED: "check that every node has the whole source, and run it again",
    Reason.SECRET_MISSING: "create the Secret that is named, and run it again",
    Reason.CREDENTIALS_MISSING: "add the keys access-key and secret-key to the Secret, and run it again",
    Reason.LISTING_FAILED: "correct the address or the Secret of the source, and run it again",
    Reason.LISTING_RETRIED: f"nothing, if the store or mount comes back soon; else: {_SEE_THE_RUNTIME}",
    Reason.SOURCE_SILENT: "check that the source, a store or a file system, answers; it is tried again",
    Reason.FILE_SYSTEM_FAILED: "fix the problem in the message; run it again if it has failed",
    Reason.WORK_LOST: "check that the bus keeps its data: paddlewheel bus status; then run it again",
    Reason.PARTITION_AWAY: f"nothing, if another partition does its work; else: {_SEE_THE_RUNTIME}",
    Reason.PARTITION_GONE: "nothing, if the partition was removed; else run it again when its node is back",
    Reason.DELETE_FAILED: "allow the keys of the Secret to delete, and run it again",
    Reason.MOUNT_LOST: (
        f"nothing: it is mounted again, and a run can be run again; if that fails: {_SEE_THE_RUNTIME}"
    ),
    Reason.MOUNT_SILENT: f"nothing: it answers again, or is mounted again; if not: {_SEE_THE_RUNTIME}",
    Reason.MOUNT_FAILED: f"fix the problem in the message; it is tried again; else: {_SEE_THE_RUNTIME}",
    Reason.STOPPED: f"nothing, while its pod is replaced; else: {_SEE_THE_RUNTIME}",
    Reason.AGENT_ENDED: f"nothing: the data is mounted again; if not: {_SEE_THE_RUNTIME}",
    Reason.PARTITION_MOVED: "restart the pods that use the data on the node that is named",
    Reason.ENGINE_UNREACHABLE: "start the database, or correct `metaurl` in the engine's Secret",
    Reason.WRONG_VOLUME: "correct `metaurl` or `name` in the engine's Secret",
    Reason.VOLUME_LOST: (
        "put back `metaurl` in the engine's Secret if it was changed, or restore the volume's database from"
        " its backup; see docs/tasks/data.md, When a database is lost"
    ),
    Reason.RECORD_UNREADABLE: (
        "restore the bus from its backup, or delete the record that is named if nothing was ever mounted"
    ),
    Reason.DATABASE_UNREACHABLE: "start the database, or correct `metaurl` in the engine's Secret",
    Reason.STORE_UNREACHABLE: "start the object store, or correct `bucket` in the engine's Secret",
    Reason.CACHE_DISK_FULL: f"free some of the disk that is named, or {_ANOTHER_DISK}",
    Reason.CACHE_DISK_FAILED: f"replace the disk that is named, or {_ANOTHER_DISK}",
    Reason.CELL_FAILED: "delete the runtime pod of the partition that is named, and run it again",
    Reason.ENGINE_MISSING: "have the operator correct the chart's image of the runtime, and run it again",
    Reason.COPY_TIMEOUT: "check that the source answers, and raise syncOptions.bwlimit if it is low",
    Reason.BUS_UNAVAILABLE: "check that the bus answers: paddlewheel bus status; the work is tried again",
    Reason.PUBLISHING_RETRIED: "nothing, while other runs go on; else see: paddlewheel bus status",
    Reason.ENGINE_TIMEOUT: f"run it again; if that fails: {_SEE_THE_RUNTIME}",
    Reason.CANCELLED: "nothing, or run it again",
}
"""Advice by the reason of a set or a run. `{name}` and `{key}` are those of the set, `{namespace}` is the
namespace of both, and `{object}` is the object with the reason, such as `sampleset digits`."""


def data_advice_for(reason: Reason) -> str:
    """Advice for the reason of a data set or a run."""
    return DATA_ADVICE.get(reason, SEE_MESSAGE)
