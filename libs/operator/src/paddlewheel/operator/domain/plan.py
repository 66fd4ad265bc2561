"""The form of every plan: actions on the cluster, the wanted status, and when to reconcile again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import REASONS, Reason

Manifest = Mapping[str, Any]

MESSAGE_LIMIT = 800
"""Maximum characters of another program's message in a status. An admission webhook may return 100 kB.

Together with a reason before it and instructions after it, the message fits into a Kubernetes Event (1,024).
"""
_CUT = "..."


@dataclass(frozen=True)
class LazyManifest:
    """A manifest that is rendered when its child is created.

    A pass names all missing children. While a quota refuses them, it tries to create a few only.
    """

    key: Key
    render: Callable[[], Manifest] = field(compare=False)


@dataclass(frozen=True)
class Create:
    """Create a child. If it exists already and is ours, it is not changed.

    Args:
        needs: kinds without a failure earlier in this pass. After such a failure this action is skipped.
    """

    kind: str
    manifest: Manifest | LazyManifest
    needs: tuple[str, ...] = ()

    def render(self) -> dict[str, Any]:
        """The manifest of the child."""
        made = self.manifest
        return dict(made.render() if isinstance(made, LazyManifest) else made)

    @property
    def key(self) -> Key:
        """Namespace and name of the child."""
        if isinstance(self.manifest, LazyManifest):
            return self.manifest.key
        metadata = self.manifest["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])


@dataclass(frozen=True)
class Patch:
    """Apply a JSON merge patch. Do nothing if the object does not exist.

    Args:
        uid: patch only the object with this uid. "" means any object of the name.
        subresource: the subresource to patch. "" means the object itself.
    """

    kind: str
    key: Key
    patch: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    uid: str = ""
    subresource: Literal["", "status"] = ""


@dataclass(frozen=True)
class Delete:
    """Delete the child with this uid. Another object of the same name is not deleted.

    Args:
        vanishes: the child has no grace period and no finalizers, so it is gone at once.
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
    """A failed operation on a child or a dependency.

    Args:
        reason: one of our reasons, or a reason of the API server.
        message: the message, cut to `MESSAGE_LIMIT` characters.
        is_refusal: the operation can never succeed as requested. Other failures may end without a change.
    """

    verb: Verb
    kind: str
    key: Key
    reason: str
    message: str
    is_refusal: bool = False

    def __post_init__(self) -> None:
        # The message is cut here, so that it is the same wherever it is compared or shown.
        object.__setattr__(self, "message", shorten(self.message))

    @property
    def subject(self) -> str:
        """Kind and key for messages, for example `Pod team-a/x`."""
        return f"{self.kind} {self.key}"

    @property
    def shown_reason(self) -> str:
        """The reason for conditions and Kubernetes Events: one of ours.

        A reason of the API server is replaced, for example by `FailedCreate`.
        """
        return self.reason if self._is_ours else _FAILED[self.verb]

    @property
    def shown_message(self) -> str:
        """The message for conditions and Kubernetes Events. It includes a reason of the API server."""
        parts = (self.subject, *(() if self._is_ours else (self.reason,)), self.message)
        return ": ".join(dict.fromkeys(parts))

    @property
    def _is_ours(self) -> bool:
        """True for one of our reasons.

        InternalError is also a reason of the API server, for example when a webhook fails. Ours never
        concerns a child.
        """
        return self.reason in REASONS and self.reason != Reason.INTERNAL_ERROR


@dataclass(frozen=True)
class ChildRef:
    """A child that exists in the API server."""

    kind: str
    key: Key
    uid: str


@dataclass(frozen=True)
class Applied:
    """The outcome of the actions of a plan.

    Args:
        created: kinds of the created or claimed children, with one entry for each child.
        troubles: failures of this pass, and earlier failures that are not due for a retry yet.
        retry_after: seconds until the first retry of a failed action.
        children: the created or claimed children.
    """

    created: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    retry_after: float | None = None
    children: tuple[ChildRef, ...] = field(default=(), compare=False)

    @property
    def first(self) -> Trouble | None:
        """The trouble to report. It is the same in every pass with the same troubles, so that conditions do
        not flap."""
        return min(self.troubles, key=lambda t: (t.kind, t.key, t.verb), default=None)


@dataclass(frozen=True)
class KubernetesEvent:
    """A Kubernetes Event about the object, created after the status was recorded. `reason` is one of ours."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Status(Protocol):
    """The status of a kind: a frozen dataclass or a pydantic model that has at least these fields."""

    @property
    def conditions(self) -> Conditions: ...

    @property
    def announcements(self) -> Announcements: ...

    def render(self) -> dict[str, Any]:
        """The whole `status` as JSON."""
        ...


S = TypeVar("S")


@dataclass(frozen=True)
class Plan(Generic[S]):
    """The decision about one object.

    Args:
        status: the wanted status. None does not change it.
        actions: groups of actions with the same verb and kind. Groups run in the given order, the actions of
            a group concurrently.
        metadata: merge patch for the metadata of the object itself, applied before the actions.
        verify: read the object again before the actions, because its cache may be older than those of its
            children.
        release: merge patch for the metadata that removes the finalizer, applied after every fact was
            published.
        release_anyway: apply `release` even if facts are pending.
        expiry: delete the object itself after every fact was published, and create this Kubernetes Event.
        events: Kubernetes Events, created after the status was recorded.
        requeue_after: seconds until the next pass. None waits for a change.
    """

    status: S | None = None
    actions: tuple[Any, ...] = ()
    metadata: Mapping[str, Any] | None = None
    verify: bool = False
    release: Mapping[str, Any] | None = None
    release_anyway: bool = False
    expiry: KubernetesEvent | None = None
    events: tuple[KubernetesEvent, ...] = ()
    requeue_after: float | None = None


def shorten(message: str) -> str:
    """The message, cut to the length that a status may hold."""
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - len(_CUT)] + _CUT


AT_ONCE = 0.0
"""A `requeue_after` for a step that can follow as soon as this one is recorded. The own status write does not
start the next pass."""


def earliest(*delays: float | None) -> float | None:
    """The smallest of the delays in seconds. None when every delay is None."""
    return min((delay for delay in delays if delay is not None), default=None)
