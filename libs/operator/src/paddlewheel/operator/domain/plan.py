"""The form of every plan: actions on the cluster, the wanted status, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import REASONS, Reason

Manifest = Mapping[str, Any]

MESSAGE_LIMIT = 800
"""Characters of somebody else's words in a status: an admission webhook may refuse in 100 kB of them. With
the reason before them and the remedy after them they fit into a Kubernetes Event (1,024)."""
_CUT = "..."


@dataclass(frozen=True)
class Create:
    """Create a child; one of ours that exists already is left as it is.

    Args:
        needs: kinds that must have had no trouble earlier in this pass.
    """

    kind: str
    manifest: Manifest
    needs: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Address of the child."""
        metadata = self.manifest["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])


@dataclass(frozen=True)
class Patch:
    """Apply a JSON merge patch; an object that does not exist is left alone.

    Args:
        uid: of the object that is meant; another one of the same name is left alone. "" means any.
        subresource: of the object, which the patch is for.
    """

    kind: str
    key: Key
    patch: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    uid: str = ""
    subresource: Literal["", "status"] = ""


@dataclass(frozen=True)
class Delete:
    """Delete the child with this uid; another object of the same name is left alone.

    Args:
        vanishes: it has no grace period and no finalizers, so it is gone at once.
    """

    kind: str
    key: Key
    uid: str
    needs: tuple[str, ...] = ()
    vanishes: bool = False


Action = Create | Patch | Delete
Verb = Literal["create", "patch", "delete", "read"]
_FAILED: Mapping[Verb, Reason] = {
    "create": Reason.FAILED_CREATE,
    "patch": Reason.FAILED_UPDATE,
    "delete": Reason.FAILED_DELETE,
    "read": Reason.FAILED_GET,
}


@dataclass(frozen=True)
class Trouble:
    """An operation on a child or a dependency that failed.

    Args:
        reason: one of ours, or the API server's.
        message: kept to its first `MESSAGE_LIMIT` characters.
        is_refusal: the operation can never succeed as asked; other failures may pass by themselves.
    """

    verb: Verb
    kind: str
    key: Key
    reason: str
    message: str
    is_refusal: bool = False

    def __post_init__(self) -> None:
        # Here, so that a message is the same wherever it is compared and wherever it is shown.
        object.__setattr__(self, "message", shorten(self.message))

    @property
    def subject(self) -> str:
        """`Pod team-a/x`, for messages."""
        return f"{self.kind} {self.key}"

    @property
    def shown_reason(self) -> str:
        """For conditions and Kubernetes Events: one of ours, `FailedCreate` where it is the API server's."""
        return self.reason if self._is_ours else _FAILED[self.verb]

    @property
    def shown_message(self) -> str:
        """For conditions and Kubernetes Events, with the API server's reason."""
        words = (self.subject, *(() if self._is_ours else (self.reason,)), self.message)
        return ": ".join(dict.fromkeys(words))

    @property
    def _is_ours(self) -> bool:
        """InternalError is the API server's word too, as when a webhook fails; ours is of no child."""
        return self.reason in REASONS and self.reason != Reason.INTERNAL_ERROR


@dataclass(frozen=True)
class ChildRef:
    """A child that exists in the API server."""

    kind: str
    key: Key
    uid: str


@dataclass(frozen=True)
class Applied:
    """Outcome of a plan's actions.

    Args:
        created: kinds of the children that were created or claimed, one entry for each.
        troubles: what failed in this pass, or failed before and is not due to be tried again yet.
        retry_after: seconds until the first failed action is due again.
        children: the children that `created` counts.
    """

    created: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    retry_after: float | None = None
    children: tuple[ChildRef, ...] = field(default=(), compare=False)

    @property
    def first(self) -> Trouble | None:
        """The trouble to report: the same one in every pass with the same troubles, so that conditions
        do not flap."""
        return min(self.troubles, key=lambda t: (t.kind, t.key, t.verb), default=None)


@dataclass(frozen=True)
class KubernetesEvent:
    """A Kubernetes Event about the object, emitted after the status was recorded. `reason` is one of ours."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Status(Protocol):
    """Status of one kind: a frozen dataclass or pydantic model with these fields among its own."""

    @property
    def conditions(self) -> Conditions: ...

    @property
    def announcements(self) -> Announcements: ...

    def render(self) -> dict[str, Any]:
        """The whole `status`, as JSON."""
        ...


S = TypeVar("S")


@dataclass(frozen=True)
class Plan(Generic[S]):
    """What to do about one object.

    Args:
        status: the wanted status; None leaves it as it is.
        actions: executed in the given order of (verb, kind) groups, each group concurrently.
        metadata: merge patch of the object's own metadata, applied before the actions.
        verify: read the object again before acting, for its cache may be behind those of its children.
        release: merge patch of the object's metadata that removes the finalizer, applied once every fact is
            published.
        release_anyway: apply `release` though facts are still pending.
        events: Kubernetes Events, emitted once the status is recorded.
        requeue_after: seconds; None when only a change matters.
    """

    status: S | None = None
    actions: tuple[Any, ...] = ()
    metadata: Mapping[str, Any] | None = None
    verify: bool = False
    release: Mapping[str, Any] | None = None
    release_anyway: bool = False
    events: tuple[KubernetesEvent, ...] = ()
    requeue_after: float | None = None


def shorten(message: str) -> str:
    """The beginning of a message of others that is too long for a status."""
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - len(_CUT)] + _CUT


AT_ONCE = 0.0
"""Seconds until the next pass: its step can be taken as soon as this one is recorded, by a write that wakes
nobody."""


def earliest(*wishes: float | None) -> float | None:
    """The smallest of the given delays in seconds, None when there is none."""
    return min((wish for wish in wishes if wish is not None), default=None)
