"""Gates that could not ask whether their pods may start.

Some let their pods start without an answer. The others wait on, and the service notices that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from job_controller.core import names
from job_controller.core.environment import told_host
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Pod, PodId
from job_controller.timing import GATE_CHECK_INTERVAL_SECONDS, GATE_GRACE_SECONDS
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.crds import Network
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent, shorten

_CONNECT = (
    "let pods of this namespace connect to the Service job-controller, as in their NetworkPolicies, or set"
    " jobController.gate.enabled to false"
)
_RESOLVE = "let pods of this namespace resolve names by the DNS of the cluster, as in their NetworkPolicies"


def has_gate(job: Job, options: Options) -> bool:
    """New pods of the job have a gate. Elastic pods in the other networks have nothing to wait for."""
    return bool(options.gate_image) and _may_have_gate(job)


def finds_services(spec: Mapping[str, Any]) -> bool:
    """The pod resolves names of Services. On the host's network, ClusterFirst means the node's own DNS."""
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))


def needs_address(job: Job) -> bool:
    """The gates of some pods ask this service by its address, because they resolve no names of Services."""
    specs = (role.template.get("spec") or {} for role in job.roles)
    return _may_have_gate(job) and not all(map(finds_services, specs))


def _may_have_gate(job: Job) -> bool:
    return job.network is Network.SERVICE or not job.elastic


def may_fall_back(seen: Observed, pod: PodId) -> bool:
    """A pod that is made now may start without an answer: its kubelet waits for the ConfigMap.

    A ConfigMap that exists has the address of the pod that had this place before. A worker beyond the present
    world has only its gate.
    """
    is_safe = seen.config is None or seen.job.network is Network.SERVICE
    return is_safe and seen.job.trains(pod)


def resolves_before_fallback(seen: Observed) -> bool:
    """Without an answer, the first pods wait for the names in their ConfigMap. Later pods join others that
    have started, and some of these may have succeeded: their names do not resolve."""
    return seen.job.network is Network.SERVICE and seen.config is None and not seen.job.elastic


def open_gates(seen: Observed) -> list[Pod]:
    """Pods at gates that have nothing more to wait for."""
    waiting = [pod for pod in seen.world_pods if pod.at_gate and not _is_leaving(pod) and not pod.awaited]
    if seen.job.network is Network.SERVICE:
        resolving = {pod.name for pod in seen.pods if pod.ip and not pod.terminating}
        awaited = seen.job.unfinished_names
        return [pod for pod in waiting if resolving.issuperset(awaited[pod.id.role])]
    told = seen.config or {}
    return [pod for pod in waiting if pod.ip and told_host(told, pod.id) == pod.ip]


def _is_leaving(pod: Pod) -> bool:
    return pod.terminating or pod.given_up


def with_stuck_gates(seen: Observed, now: datetime) -> Observed:
    """The same, with pods whose gates have had nothing to wait for for a while."""
    if not any(pod.at_gate for pod in seen.world_pods):
        return seen
    grace = timedelta(seconds=GATE_GRACE_SECONDS)
    dues = {uid: since + grace for uid, since in seen.gates_open_since.items()}
    pods = (_stuck(pod) if pod.uid in dues and dues[pod.uid] <= now else pod for pod in seen.pods)
    # No change wakes the job after it has written its ConfigMap if the gates do not open.
    check = now + timedelta(seconds=GATE_CHECK_INTERVAL_SECONDS)
    return replace(seen, pods=tuple(pods)).looking_at((*dues.values(), check), now)


def _stuck(pod: Pod) -> Pod:
    return replace(pod, gate_failure=f"no answer for {GATE_GRACE_SECONDS:g} s")


def gate_conditions(seen: Observed, phase: str) -> list[Condition]:
    """Nothing for a job whose gates have always got an answer."""
    failed = next((pod for pod in seen.world_pods if pod.gate_failure), None)
    if failed is not None:
        done = "keeps it from starting" if failed.at_gate else "started the pod without an answer"
        is_by_name = failed.at_gate and seen.job.network is Network.SERVICE
        what_to_do = _RESOLVE if is_by_name else _CONNECT
        message = shorten(f"the gate of pod {failed.name} {done} ({failed.gate_failure}); {what_to_do}")
        return [Condition(names.CONDITION_GATE_UNANSWERED, "True", Reason.GATE_UNANSWERED, message)]
    has_recovered = (
        phase == names.RUNNING and seen.status.condition(names.CONDITION_GATE_UNANSWERED) == "True"
    )
    return [Condition(names.CONDITION_GATE_UNANSWERED, "False", Reason.RECOVERED)] if has_recovered else []


def gate_failure_events(job: Job, status: JobStatus) -> tuple[KubernetesEvent, ...]:
    """A gate got no answer, once in the life of the job."""
    before, after = (find(s.conditions, names.CONDITION_GATE_UNANSWERED) for s in (job.status, status))
    if after is None or before is not None:
        return ()
    return (KubernetesEvent("Warning", after.reason, after.message),)
