"""The kubelets, the scheduler and other controllers, which write to the pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.unit.job_controller.properties.server import ModelClock, Server

from job_controller.core import names
from job_controller.core.parse import parse_job
from job_controller.core.pods import PodId
from job_controller.features.start_gate.question import Question, names_to_resolve
from paddlewheel.contracts.crds.paddlejob import ROLES
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.core.errors import Retry
from paddlewheel.kube.objects import controller_of, controller_uid, key_of, uid_of
from paddlewheel.kube.ports import Object

NODES = ("node-0", "node-1")
SCHEDULER = "kube-scheduler"
EVICTION_GRACE_SECONDS = 340.0
"""Kubernetes deletes the pods of a node that sends no heartbeat for this long."""
RENEWAL_INTERVAL_SECONDS = 10.0
"""A kubelet renews the Lease of its node this often."""
ENDED = ("Failed", "Succeeded")
CODES = {"exit-1": 1, "exit-2": 2, "exit-3": 3, "oom": 137}
"""Ends of a container, and their exit codes."""
DISRUPTIONS = ("PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager")


def phase_of(pod: Object) -> str:
    return str(pod["status"].get("phase"))


def is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_alive(pod: Object) -> bool:
    """It runs or may run, and its deletion was not requested."""
    return not is_going(pod) and phase_of(pod) not in ENDED


def epoch_of(pod: Object) -> int:
    return int(annotation(pod, names.ANNOTATION_EPOCH) or 0)


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def job_of(pod: Object) -> Key:
    """Address of the pod's job."""
    owner = controller_of(pod)
    assert owner is not None
    return Key(key_of(pod).namespace, str(owner["name"]))


def annotation(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def has_begun(pod: Object) -> bool:
    return phase_of(pod) in ("Running", *ENDED)


class Kubelet:
    """Writes the status of pods as it could be on a real node."""

    def __init__(self, server: Server, clock: ModelClock) -> None:
        self.slots: dict[str, int] = {}
        """Pods that fit on each node; without any node every pod finds room."""
        self.dead: dict[str, float] = {}
        """Nodes that send no heartbeat, and since when. The scheduler may be one of them."""
        self.ahead: dict[str, float] = {}
        """Seconds that the clock of a node is ahead."""
        self.cannot_reach_server = False
        """Leases can be neither renewed nor read."""
        self.outages: list[tuple[float, float]] = []
        """When that was so."""
        self.failed_at: dict[str, float] = {}
        """When pods failed, by uid."""
        self._server = server
        self._clock = clock
        self._addresses = 0

    @property
    def pods(self) -> list[Object]:
        return list(self._server.objects[names.POD].values())

    def lease_of(self, key: Key) -> Object:
        """The Lease of a node, or of the scheduler. Its owner renews it every 10 s while the owner works and
        the API server answers."""
        if self.cannot_reach_server:
            raise Retry("away")
        node = key.name
        last = self.dead.get(node, self._clock.elapsed) // RENEWAL_INTERVAL_SECONDS * RENEWAL_INTERVAL_SECONDS
        while any(begin < last < end for begin, end in self.outages):
            last -= RENEWAL_INTERVAL_SECONDS
        ago = self._clock.elapsed - last
        return {"spec": {"renewTime": self._stamp(node, -ago)}}

    def place(self, pod: Object, node: str = NODES[0]) -> None:
        """It gets a node and an address, and its init containers begin."""
        if pod["spec"].get("nodeName") or not is_alive(pod):
            return
        self._addresses += 1
        own = f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"
        address = f"192.168.0.{int(node.rpartition('-')[2]) + 1}" if pod["spec"].get("hostNetwork") else own
        self._server.patch(names.POD, key_of(pod), {"spec": {"nodeName": node}})
        self._say(pod, podIP=address, startTime=self._stamp(node), conditions=None)
        if _gate_of(pod) is not None:
            self._say(pod, initContainerStatuses=[{"name": names.GATE_CONTAINER, "state": {"running": {}}}])

    def may_start(self, pod: Object) -> bool:
        """Its own containers can be started."""
        node = pod["spec"].get("nodeName")
        if phase_of(pod) != "Pending" or not node or node in self.dead or is_going(pod):
            return False
        needs_config = any("configMapRef" in s for s in pod["spec"]["containers"][0].get("envFrom", ()))
        config = self._server.objects[names.CONFIG_MAP].get(job_of(pod))
        return (config is not None or not needs_config) and self._has_passed_gate(pod)

    def start(self, pod: Object) -> None:
        """Its containers run, and are not ready."""
        if not self.may_start(pod):
            return
        if _gate_of(pod) is not None:
            passed = {"name": names.GATE_CONTAINER, "state": {"terminated": {"exitCode": 0}}}
            self._say(pod, initContainerStatuses=[passed])
        self._say(pod, phase="Running", containerStatuses=[_container({"running": {}}, ready=False)])

    def make_ready(self, pod: Object) -> None:
        if phase_of(pod) == "Running" and not is_going(pod):
            self._say(pod, containerStatuses=[_container({"running": {}}, ready=True)])

    def succeed(self, pod: Object) -> None:
        if phase_of(pod) == "Running":
            ended = {"exitCode": 0, "finishedAt": self._stamp(node_of(pod)), "message": '{"loss": 0.5}'}
            self._say(pod, phase="Succeeded", containerStatuses=[_container({"terminated": ended})])

    def fail(self, pod: Object, how: str) -> None:
        """Its container ends with an error; it is started again if its policy allows that."""
        if phase_of(pod) != "Running":
            return
        reason = "OOMKilled" if how == "oom" else "Error"
        at = self._stamp(node_of(pod))
        ended = {"exitCode": CODES[how], "finishedAt": at, "reason": reason, "message": "words"}
        if pod["spec"].get("restartPolicy") == "OnFailure" and not is_going(pod):
            waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
            looping = {**_container(waiting), "lastState": {"terminated": ended}}
            self._say(pod, containerStatuses=[looping])
            return
        self.failed_at[uid_of(pod)] = self._clock.elapsed
        self._say(pod, phase="Failed", containerStatuses=[_container({"terminated": ended})])

    def refuse(self, pod: Object, reason: str) -> None:
        """The kubelet ends a pod for a reason of the node's."""
        if pod["spec"].get("nodeName") and phase_of(pod) not in ENDED:
            self._say(pod, phase="Failed", reason=reason, message="the node was low on resource")

    def disrupt(self, pod: Object, reason: str) -> None:
        """Its node or its room is needed: it is marked and deleted."""
        if phase_of(pod) in ENDED or is_going(pod):
            return
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        self._say(pod, conditions=[target])
        self._server.delete(names.POD, key_of(pod))

    def hinder(self, pod: Object, what: str) -> None:
        """It cannot be scheduled, or its image cannot be pulled."""
        if phase_of(pod) != "Pending" or is_going(pod):
            return
        if what == "Unschedulable" and not pod["spec"].get("nodeName"):
            said = {"type": "PodScheduled", "status": "False", "reason": what, "message": "0/3 nodes fit"}
            self._say(pod, conditions=[said])
        if what != "Unschedulable" and pod["spec"].get("nodeName"):
            self._say(pod, containerStatuses=[_container({"waiting": {"reason": what}})])

    def confirm(self, pod: Object) -> None:
        """A deleted pod has ended."""
        if is_going(pod):
            self._server.confirm(key_of(pod))

    def let_go(self, pod: Object) -> None:
        """The owners of its finalizers remove them."""
        if pod["metadata"].get("finalizers"):
            self._server.patch(names.POD, key_of(pod), {"metadata": {"finalizers": None}})

    def round(self) -> bool:
        """Everything goes well for a while, on the nodes that live. Whether anything has changed."""
        before = self._server.version
        for pod in self.pods:
            self.let_go(pod)
        for pod in [pod for pod in self.pods if is_going(pod) and node_of(pod) not in self.dead]:
            self.confirm(pod)
        self._evict()
        self._schedule()
        for key in [key_of(pod) for pod in self.pods]:
            self.start(self._server.get(names.POD, key))
            self.make_ready(self._server.get(names.POD, key))
        return self._server.version > before

    def declare_out_of_service(self, node: str) -> None:
        """An administrator knows that the node is off: Kubernetes lets its deleted pods go."""
        for pod in [pod for pod in self.pods if node_of(pod) == node and is_going(pod)]:
            self._server.delete(names.POD, key_of(pod), grace=0)

    def _evict(self) -> None:
        for pod in self.pods:
            since = self.dead.get(node_of(pod))
            if since is not None and self._clock.elapsed >= since + EVICTION_GRACE_SECONDS:
                self.disrupt(pod, "DeletionByTaintManager")

    def _schedule(self) -> None:
        """The pod that waits longest first."""
        for pod in self.pods if SCHEDULER not in self.dead else ():
            if not is_alive(pod) or node_of(pod):
                continue
            if not self.slots:
                self.place(pod)
            elif room := self._room():
                self.place(pod, room)
            else:
                self.hinder(pod, "Unschedulable")

    def _room(self) -> str | None:
        taken = [node_of(pod) for pod in self.pods if phase_of(pod) not in ENDED]
        free = (node for node, slots in self.slots.items() if taken.count(node) < slots)
        return next((node for node in free if node not in self.dead), None)

    def _has_passed_gate(self, pod: Object) -> bool:
        gate = _gate_of(pod)
        if gate is None:
            return True
        awaited = self._answer(pod)
        return awaited is not None and all(map(self._resolves, awaited))

    def _answer(self, pod: Object) -> tuple[str, ...] | None:
        """The answer of the service to the gate."""
        key, place = job_of(pod), PodId(role_of(pod), index_of(pod))
        job = self._server.objects[names.JOB].get(key)
        if job is None or controller_uid(pod) != [uid_of(job)]:
            return None
        config = self._server.objects[names.CONFIG_MAP].get(key)
        is_own = config is not None and controller_uid(config) == controller_uid(pod)
        data = config["data"] if config and is_own else {}
        question = Question(key, uid_of(job), epoch_of(pod), place, str(pod["status"].get("podIP")))
        return names_to_resolve(question, parse_job(job), data)

    def _resolves(self, name: str) -> bool:
        """A headless Service with unready addresses resolves once its pod has one."""
        at = next((k for k in self._server.objects[names.SERVICE_KIND] if k.name == name), None)
        pod = self._server.objects[names.POD].get(at) if at else None
        return pod is not None and bool(pod["status"].get("podIP")) and phase_of(pod) not in ENDED

    def _say(self, pod: Object, **status: Any) -> None:
        self._server.patch(names.POD, key_of(pod), {"status": status})

    def _stamp(self, node: str, seconds: float = 0) -> str:
        """The present time by the clock of the node, and so many seconds."""
        return seconds_stamp(self._clock.now() + timedelta(seconds=self.ahead.get(node, 0) + seconds))


def _gate_of(pod: Object) -> Mapping[str, Any] | None:
    inits = pod["spec"].get("initContainers") or ()
    return next((c for c in inits if c["name"] == names.GATE_CONTAINER), None)


def _container(state: Mapping[str, Any], *, ready: bool = False) -> Object:
    return {"name": "main", "image": "example/train:1", "ready": ready, "state": dict(state)}


def role_of(pod: Object) -> str:
    role = str(pod["metadata"]["labels"][names.LABEL_TYPE])
    assert role in ROLES
    return role


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
