"""A job as its user asks for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from job_controller.core import names
from job_controller.core.job_status import JobStatus
from job_controller.core.pods import PodId
from paddlewheel.contracts.crds import PADDLE_JOB, WORKER, Mode, Network, PaddleJobSpec
from paddlewheel.contracts.crds.admission_rules import FOREIGN_SAMPLE_SET
from paddlewheel.contracts.crds.paddlejob import (
    OWN_CONTROLLER,
    RestartScope,
    World,
)
from paddlewheel.contracts.crds.violations import Subject, find_violations
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import labels_of

Manifest = dict[str, Any]
DIGEST_VERSION = "1-"
"""Changes with what a digest is made of: pods with another one are never taken for outdated."""
_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class Role:
    """One role of the job as asked for; `template` is the user's pod template, never changed."""

    name: str
    replicas: int
    template: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One PaddleJob, parsed once per version."""

    obj: Mapping[str, Any]
    key: Key
    uid: str
    generation: int
    spec: PaddleJobSpec
    status: JobStatus = field(default_factory=JobStatus)
    deleted_at: datetime | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.obj["metadata"].get("annotations") or {}

    @property
    def queue(self) -> str:
        """Kueue's LocalQueue that the job waits in, "" for none."""
        return str(labels_of(self.obj).get(names.LABEL_QUEUE, ""))

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self.obj["metadata"].get("finalizers") or ())

    @property
    def created_at(self) -> str:
        """RFC 3339."""
        return str(self.obj["metadata"].get("creationTimestamp", ""))

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The roles in creation order."""
        return tuple(Role(name, role.replicas, role.template or {}) for name, role in self.spec.roles.items())

    @cached_property
    def schedulers(self) -> frozenset[str]:
        """The schedulers that its templates name, "" for none."""
        specs = (role.template.get("spec") or {} for role in self.roles)
        return frozenset(str(spec.get("schedulerName") or "") for spec in specs)

    @cached_property
    def network(self) -> Network:
        """How its pods address each other."""
        return self.spec.network

    @cached_property
    def mode(self) -> Mode:
        """The kind of training."""
        return self.spec.mode

    @property
    def selector(self) -> str:
        """Finds the workers' pods by their labels, "" without workers."""
        return f"{names.LABEL_JOB}={self.key.name},{names.LABEL_TYPE}={WORKER}" if self.spec.worker else ""

    @property
    def elastic(self) -> bool:
        """`elastic: 0` is off."""
        return bool(self.spec.elastic)

    @property
    def is_live(self) -> bool:
        """It has not ended and is not being deleted."""
        return self.deleted_at is None and not self.status.final

    @property
    def is_anothers(self) -> bool:
        """`managedBy` names another controller."""
        return self.spec.managed_by not in ("", OWN_CONTROLLER)

    @property
    def restart_request(self) -> str:
        """The user's mark for a restart; a new value asks for one."""
        return str(self.annotations.get(names.ANNOTATION_RESTART, ""))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Reasons why the spec could never work, although the schema in the cluster may let it through. Each
        has the field and what to do."""
        subject = Subject(self.key.name, self.key.namespace, self.spec)
        refused = (FOREIGN_SAMPLE_SET.text(subject),) if FOREIGN_SAMPLE_SET.is_true_of(subject) else ()
        return (*map(str, find_violations(PADDLE_JOB, subject)), *refused)

    @cached_property
    def scope(self) -> RestartScope:
        """The pods that are restarted after a failure. Elastic pods meet in a rendezvous of their own."""
        asked = self.spec.failure_policy.restart_scope if self.spec.failure_policy else ""
        return RestartScope.POD if self.elastic or asked == RestartScope.POD else RestartScope.GANG

    @cached_property
    def pod_ids(self) -> tuple[PodId, ...]:
        """Every wanted pod, by role and index."""
        return tuple(PodId(r.name, i) for r in self.roles for i in range(r.replicas))

    @cached_property
    def wanted(self) -> frozenset[PodId]:
        """The same as a set."""
        return frozenset(self.pod_ids)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Digests of the user's spec of the pods of each role, apart from their number."""
        return {role.name: _digest(self.spec, role) for role in self.roles}

    @property
    def least_workers(self) -> int:
        """The job can train with as few."""
        wanted, least = self.replicas_of(WORKER), self.spec.worker.requests if self.spec.worker else None
        return least if least is not None and 0 < least < wanted else wanted

    @property
    def is_resizable(self) -> bool:
        """It can train with fewer workers than it wants. Paddle's own elastic launcher counts by itself."""
        return self.least_workers < self.replicas_of(WORKER) and not self.elastic

    @cached_property
    def fitting_world(self) -> World | None:
        """The recorded one, unless the user has changed the numbers since."""
        world, wanted = self.status.world, self.replicas_of(WORKER)
        if world is None or world.of != wanted or not self.least_workers <= world.workers <= wanted:
            return None
        return world if world.workers < wanted or (world.grew_from and self.is_resizable) else None

    @property
    def workers(self) -> int:
        """The number of workers that train: fewer than wanted while there is no room for all."""
        return self.fitting_world.workers if self.fitting_world else self.replicas_of(WORKER)

    def least_of(self, role: str) -> int:
        """Pods of the role without which the job cannot train."""
        return self.least_workers if role == WORKER else self.replicas_of(role)

    def size_of(self, role: str) -> int:
        """Pods of the role that train together now; wanted ones beyond it wait for room."""
        return self.workers if role == WORKER else self.replicas_of(role)

    def trains(self, place: PodId) -> bool:
        """The pod of this place is one of the pods that train together now."""
        return place.ordinal < self.size_of(place.role)

    def pod_name(self, place: PodId) -> str:
        """`<job>-<role>-<i>`."""
        return names.pod_name(self.key.name, place.role, place.ordinal)

    @cached_property
    def unfinished_names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the pods of each role that train. Those of pods that have succeeded no longer resolve."""
        return {role.name: self._unfinished_names(role.name) for role in self.roles}

    def _unfinished_names(self, role: str) -> tuple[str, ...]:
        recorded = self.status.roles.get(role)
        done = frozenset(recorded.succeeded_indexes) if recorded else frozenset[int]()
        places = (place for place in self.world if place.role == role and place.ordinal not in done)
        return tuple(map(self.pod_name, places))

    @cached_property
    def world(self) -> tuple[PodId, ...]:
        """Pods that train together now, by role and index."""
        return tuple(PodId(r.name, i) for r in self.roles for i in range(self.size_of(r.name)))

    @property
    def sample_set(self) -> Key | None:
        """Address of the data set that the pods mount."""
        ref = self.spec.sample_set_ref
        return None if ref is None else Key(ref.namespace or self.key.namespace, ref.name)

    def replicas_of(self, role: str) -> int:
        """Wanted pods of the role, 0 when the job has no such role."""
        return self.spec.replicas_of(role) or 0


def _digest(spec: PaddleJobSpec, role: Role) -> str:
    data = spec.sample_set_ref
    required = [data.placement] if data and data.is_required else []
    of = {
        "template": role.template,
        "network": spec.network,
        "elastic": bool(spec.elastic),
        "checkpointPath": spec.checkpoint_path,
        "data": [data.name, data.mount_path, *required] if data else [],
    }
    return make_digest(DIGEST_VERSION, of)


def make_digest(version: str, of: Mapping[str, Any]) -> str:
    """A digest of the inputs of an object, after the version of the choice of these inputs."""
    text = json.dumps(of, sort_keys=True, default=dict)
    return version + hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
