"""The port of all engines, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paddlewheel.contracts.reasons import Reason
from serving_controller.domain import names
from serving_controller.domain.model import Children, Options, Raw
from serving_controller.domain.revision import Revision

Manifest = Mapping[str, Any]
_DEFAULTS = Options()


@dataclass(frozen=True)
class Child:
    """An object as it must be.

    Args:
        manifest: as it is created; None for an object that something else creates.
        kept: what is corrected in an existing one; the rest is left as it is.
    """

    kind: str
    name: str
    manifest: Manifest | None
    kept: Manifest = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """One revision of a service as it should be.

    Args:
        pods: it has some; otherwise it is only kept for a return.
        start_with: pods at its start.
    """

    revision: Revision
    pods: bool = True
    start_with: int = 1

    @property
    def name(self) -> str:
        return self.revision.name


@dataclass(frozen=True)
class Desired:
    """A service as an engine has to bring it about.

    Args:
        owner: its owner reference, for every child.
        traffic: percent by revision; sums up to 100.
        stable: name of the revision that answers at the default endpoint.
        newest: names of the revisions that are being tried, or will follow the stable one.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: Manifest
    revisions: tuple[Wanted, ...]
    traffic: Mapping[str, int]
    stable: str
    newest: tuple[str, ...] = ()
    min_scale: int = 0
    max_scale: int = 0
    options: Options = _DEFAULTS
    has_gateway_api: bool = False

    def wanted(self, name: str) -> Wanted | None:
        """The revision of this name."""
        return next((wanted for wanted in self.revisions if wanted.name == name), None)


@dataclass(frozen=True)
class RevisionState:
    """What runs of a revision.

    Args:
        complete: every wanted pod is ready, so that it can take requests.
        serves: it answers requests, though perhaps with fewer pods than wanted.
        reason: why it is not complete.
    """

    complete: bool = False
    serves: bool = False
    replicas: int = 0
    ready: int = 0
    reason: Reason = Reason.PODS_PENDING
    message: str = ""


@dataclass(frozen=True)
class RouteState:
    """How requests are really led.

    Args:
        traffic: percent by revision, as the gateway knows it.
        can_split: requests can be spread over revisions.
        reason: why it is not ready.
    """

    ready: bool = False
    traffic: Mapping[str, int] = field(default_factory=dict)
    url: str = ""
    can_split: bool = True
    reason: Reason = Reason.ROUTE_PENDING
    message: str = ""


class Engine(Protocol):
    """Pure: what must exist, and what the observed objects say."""

    def render(self, desired: Desired, children: Children) -> tuple[Child, ...]:
        """Every object that must exist, in the order in which they are applied; others of the engine's are
        deleted."""
        ...

    def revisions(self, children: Children, pods: tuple[Raw, ...]) -> Mapping[str, RevisionState]:
        """State of each revision that exists, by name."""
        ...

    def route(self, desired: Desired, children: Children) -> RouteState:
        """How requests are led now."""
        ...


def metadata(desired: Desired, name: str, revision: str = "") -> dict[str, Any]:
    """Of a child, which the service controls; `revision` is the one that it belongs to."""
    own = {names.LABEL_SERVICE: desired.name} | ({names.LABEL_REVISION: revision} if revision else {})
    return {
        "name": name,
        "namespace": desired.namespace,
        "labels": {**desired.labels, **own},
        "ownerReferences": [dict(desired.owner)],
    }
