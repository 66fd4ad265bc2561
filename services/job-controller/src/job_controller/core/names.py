"""Every name, label, annotation, finalizer and condition type of this service.

Reasons are in `paddlewheel.contracts.reasons`.
"""

from __future__ import annotations

import re

from paddlewheel.contracts.job_names import RESTART

SERVICE = "job-controller"
COMPONENT = "paddlejob-controller"
"""Source of Kubernetes events, as in the originals."""
FINALIZER = "finalizers.paddlepaddle.org"

JOB = "PaddleJob"
POD = "Pod"
SAMPLE_SET = "SampleSet"
SERVICE_KIND = "Service"
CONFIG_MAP = "ConfigMap"
POD_GROUP = "PodGroup"
VOLCANO_POD_GROUP = "Volcano PodGroup"
POD_GROUPS = (POD_GROUP, VOLCANO_POD_GROUP)
"""PodGroups of Kubernetes itself, and of Volcano. A cluster's API may have none, and gain or lose them."""
BEFORE_PODS = (CONFIG_MAP, SERVICE_KIND, *POD_GROUPS)
"""Kinds that pods need: no pod is created while one of these is in trouble."""
WORKLOAD = "Workload"
"""A kind of Kueue, whose API a cluster may not have."""
RESOURCE_FLAVOR = "ResourceFlavor"
PRIORITY_CLASS = "PriorityClass"
WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"
"""A kind of Kueue: a priority in queues that is not the priority of pods."""
KEPT_LOGS = "ConfigMap with logs"
"""A kind of its own for the executor: these are written once, never watched."""

LABEL_NAME = "paddle-res-name"
LABEL_TYPE = "paddle-res-type"
LABEL_JOB = "paddlepaddle.org/paddlejob"
"""Label of every child: the job's name, for `kubectl logs -l` and `kubectl delete pod -l`."""
ANNOTATION_ROLE = "paddle-resource"
ANNOTATION_HOST_PORT = "host-port"
ANNOTATION_RELEASED = "paddlepaddle.org/released"
ANNOTATION_WAITS_FOR = "paddlepaddle.org/waits-for"
ANNOTATION_EPOCH = "paddlepaddle.org/epoch"
ANNOTATION_DATA_NODE = "paddlepaddle.org/data-node"
ANNOTATION_TEMPLATE = "paddlepaddle.org/template"
"""Annotation of a pod: a digest of its template."""
ANNOTATION_RESTART = RESTART
"""Annotation. A new value on a job, such as a time stamp, restarts it. Pods have the value of their time."""

PROGRESS_URL = "PADDLEWHEEL_PROGRESS_URL"
PROGRESS_TOKEN = "PADDLEWHEEL_PROGRESS_TOKEN"  # noqa: S105 - a variable's name
ELASTIC_WORKERS = "PADDLE_ELASTIC_NP"
"""Variable of a pod with Paddle's own elastic launcher: the number of workers."""

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a job: the LocalQueue of Kueue that it waits in."""
LABEL_QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""Label of a job: its WorkloadPriorityClass."""

VOLCANO_SCHEDULER = "volcano"
ANNOTATION_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup, for Volcano."""
ANNOTATION_VOLCANO_GROUP = "scheduling.volcano.sh/group-name"
"""The same under the name that Volcano itself gives."""
VOLCANO_TASK = "volcano.sh/task-spec"
VOLCANO_JOB = "volcano.sh/job-name"
VOLCANO_VERSION = "volcano.sh/job-version"
VOLCANO_QUEUE = "volcano.sh/queue-name"

OWN_ANNOTATIONS = frozenset(
    {
        ANNOTATION_RELEASED,
        ANNOTATION_WAITS_FOR,
        ANNOTATION_EPOCH,
        ANNOTATION_DATA_NODE,
        ANNOTATION_TEMPLATE,
        ANNOTATION_RESTART,
    }
)
"""Annotations of pods. A template may have them too when it was copied from a pod. They are removed there."""

GATE_CONTAINER = "coord-paddle"
FILE_GATES = {"--file": ANNOTATION_RELEASED, "--resolve-all": ANNOTATION_WAITS_FOR}
"""Options of the gates of former versions, each with the annotation that such a gate waits for."""

BASE_PORT = 36000
PORTS_PER_POD = 20
GLOO_OFFSET = 18
MAX_LABEL = 63

PENDING = "Pending"
STARTING = "Starting"
RUNNING = "Running"
RESTARTING = "Restarting"
COMPLETED = "Completed"
FAILED = "Failed"
TERMINATING = "Terminating"
FINAL_PHASES = frozenset({COMPLETED, FAILED})

CONDITION_ACCEPTED = "Accepted"
CONDITION_ADMITTED = "Admitted"
CONDITION_RUNNING = "Running"
CONDITION_COMPLETE = "Complete"
CONDITION_FAILED = "Failed"
CONDITION_SUSPENDED = "Suspended"
CONDITION_BLOCKED = "Blocked"
CONDITION_STALLED = "Stalled"
CONDITION_DATA_LOCAL = "DataLocal"
CONDITION_GATE_UNANSWERED = "GateUnanswered"
CONDITION_NETWORK_WORD = "NetworkWordUnknown"
CONDITION_CLEAN_WORD = "CleanPodPolicyUnknown"
CONDITION_POLICY_IGNORED = "SchedulingPolicyIgnored"
# ReconcileFailed is set by paddlewheel.operator.reconciler for every kind.
EXPLAINED_BY = (
    (CONDITION_ACCEPTED, "False"),
    (CONDITION_FAILED, "True"),
    (CONDITION_BLOCKED, "True"),
    (CONDITION_COMPLETE, "True"),
    (CONDITION_ADMITTED, "False"),
    (CONDITION_STALLED, "True"),
    (CONDITION_RUNNING, ""),
)
"""Conditions that `status.reason` is taken from, the most important first."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def pod_name(job: str, role: str, index: int) -> str:
    """Name of the pod and of its Service."""
    return f"{job}-{role}-{index}"


def workload_name(job: str) -> str:
    """Name of the job's Workload, beside those of other kinds."""
    return f"paddlejob-{job}"


def pod_index(job: str, role: str, name: str) -> int | None:
    """The index in a pod's name; None when the name is not one of this role."""
    prefix, _, number = name.rpartition("-")
    if prefix != f"{job}-{role}" or not number.isdecimal() or str(int(number)) != number:
        return None
    return int(number)


def is_dns_label(name: str) -> bool:
    """True for what a Service or a volume may be called: at most 63 of a-z, 0-9 and '-'."""
    return len(name) <= MAX_LABEL and _DNS_LABEL.fullmatch(name) is not None


def volume_name(sample_set: str) -> str:
    """The data set's volume in a pod: its own name where that is a legal volume name."""
    return sample_set if is_dns_label(sample_set) else "sample-set"
