"""A PaddleService as asked for and as observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from paddlewheel.contracts.crds import parse_paddle_service_spec, parse_paddle_service_status
from paddlewheel.contracts.crds.paddleservice import PaddleServiceSpec, PaddleServiceStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import (
    annotations_of,
    deleted_at,
    finalizers_of,
    generation_of,
    key_of,
    uid_of,
)
from paddlewheel.contracts.stamps import parse_stamp
from serving_controller.domain.chosen import Chosen, read_chosen
from serving_controller.domain.judge import Counts
from serving_controller.domain.measured import Measured

Raw = Mapping[str, Any]
"""JSON as the API server gives it; shared, never changed."""
Children = Mapping[str, Mapping[str, Raw]]
"""By kind and name, the objects that a service controls, with Knative's revisions of it."""


@dataclass(frozen=True)
class Options:
    """The installation's settings that decisions depend on.

    Args:
        domain: of the services' hosts.
        gateway: `namespace/name` of the Gateway that routes are attached to; "" = none.
        runtime_image: serves models.
        model_cache: folder of every node in which fetched models are kept; "" = each pod has its own.
        pull_policy: of the users' own images.
        startup_seconds: that a pod may take until it answers; then it is started again.
        drain_seconds: that a revision keeps its pods once it gets no requests.
        poll_seconds: between two looks at the figures of a canary.
        deletion_patience: seconds that a deleted service waits for the bus to take its last fact.
    """

    domain: str = "example.com"
    gateway: str = ""
    runtime_image: str = "paddlewheel/paddle-runtime:dev"
    model_cache: str = ""
    pull_policy: str = "Always"
    startup_seconds: int = 600
    drain_seconds: float = 30.0
    poll_seconds: float = 5.0
    deletion_patience: float = 600.0


@dataclass(frozen=True)
class Service:
    """One PaddleService, parsed once per version."""

    obj: Raw
    key: Key
    uid: str
    generation: int
    spec: PaddleServiceSpec
    status: PaddleServiceStatus
    deleted_at: datetime | None = None

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def finalizers(self) -> tuple[str, ...]:
        return finalizers_of(self.obj)

    @property
    def annotations(self) -> Mapping[str, str]:
        return annotations_of(self.obj)

    @cached_property
    def chosen(self) -> Chosen:
        """Published versions that were chosen before."""
        return read_chosen(self.obj)


@dataclass(frozen=True)
class Observed:
    """Everything one decision is made from.

    Args:
        children: what the service controls.
        pods: of all its revisions.
        installed: optional kinds that the cluster has.
        published: models that the service follows.
        figures: requests by revision since the step began; None when there are none to be had.
        figures_trouble: why there are none.
        measured: by revision, what others have measured; None while that is not all read.
        looks_since: when this process looked first at the step of a rollout; None without one.
    """

    own: Service
    children: Children = field(default_factory=dict)
    pods: tuple[Raw, ...] = ()
    installed: frozenset[str] = frozenset()
    published: Chosen = field(default_factory=dict)
    figures: Mapping[str, Counts] | None = None
    figures_trouble: str = ""
    measured: Mapping[str, Measured] | None = None
    looks_since: datetime | None = None

    @property
    def obj(self) -> dict[str, Any]:
        """The object as the API server gave it."""
        return dict(self.own.obj)

    @property
    def status(self) -> PaddleServiceStatus:
        return self.own.status

    def of(self, kind: str) -> Mapping[str, Raw]:
        """Children of one kind by name."""
        return self.children.get(kind, {})


def parse_service(raw: Raw) -> Service:
    """The object as the API server gives it. Raises Permanent, which names the field."""
    return Service(
        obj=raw,
        key=key_of(raw),
        uid=uid_of(raw),
        generation=generation_of(raw),
        spec=parse_paddle_service_spec(raw),
        status=parse_paddle_service_status(raw),
        deleted_at=parse_stamp(deleted_at(raw)),
    )
