"""What one identity may do: its role's permissions, narrowed to its namespaces."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.bus.admin.accounts import HOME, RESIDENTS, WATCHERS
from paddlewheel.bus.admin.permissions import (
    OURS,
    SUBSCRIBER,
    Declared,
    Permissions,
    in_groups,
    member_of,
    permissions_of,
)
from paddlewheel.contracts.subjects import event_filter, token
from paddlewheel.core.errors import Permanent

_ANY = "*"


@dataclass(frozen=True)
class Watch:
    """Live facts of some namespaces. Building one raises Permanent when a part is not a valid token.

    Args:
        queue: tokens of the queue groups that are the watcher's own: `a`, `b` are `watch.a.b` and
            `watch.a.b.<anything>`.
    """

    namespaces: frozenset[str]
    queue: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.namespaces:
            token(name, "namespace")
        for part in self.queue:
            token(part, "queue group")


@dataclass(frozen=True)
class Identity:
    """Who is connected, as Kubernetes has it.

    Args:
        role: one that is declared.
        team: of a subscriber, whose account it shares; "" = none.
        watch: what a subscriber without a team hears.
    """

    role: str
    team: str = ""
    watch: Watch | None = None


def rights(identity: Identity, declared: Declared = OURS) -> tuple[str, Permissions]:
    """The account of the server that the identity belongs to, and its permissions there.

    Args:
        declared: everything that is on the bus.

    Raises:
        Permanent: an unknown role, or a subscriber without facts.
    """
    may = permissions_of(declared.role(identity.role), declared)
    if identity.role == SUBSCRIBER:
        return _subscriber(identity)
    return (HOME if identity.role in RESIDENTS else identity.role), may


def _subscriber(identity: Identity) -> tuple[str, Permissions]:
    """Whoever is in a team shares its consumers; a watcher is never in a team's account."""
    if identity.team:
        return identity.team, member_of(identity.team)
    if identity.watch is None:
        raise Permanent("NoFacts", "a subscriber is in a team, or watches namespaces")
    return WATCHERS, _watches(identity.watch)


def _watches(watch: Watch) -> Permissions:
    """Live facts only: what a consumer reads is not bound to a namespace by the server's permissions.

    Nothing to publish and no inbox.
    """
    own = ".".join(("watch", *watch.queue))
    filters = [event_filter(_ANY, namespace=name, version=_ANY) for name in watch.namespaces]
    return Permissions(subscribe=frozenset().union(*(in_groups(subject, own) for subject in filters)))
