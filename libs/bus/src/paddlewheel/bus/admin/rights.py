"""The permissions of one identity: those of its role, narrowed to its namespaces."""

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
    """The live facts of some namespaces. Raises Permanent when a name is not a valid token.

    Args:
        queue: tokens that the names of the watcher's own queue groups begin with: `a`, `b` allow `watch.a.b`
            and `watch.a.b.<anything>`.
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
    """The authenticated client of a connection.

    Args:
        role: a declared role.
        team: the team of a subscriber, which shares the team's account; "" = none.
        watch: the facts that a subscriber without a team receives.
    """

    role: str
    team: str = ""
    watch: Watch | None = None


def rights(identity: Identity, declared: Declared = OURS) -> tuple[str, Permissions]:
    """The account of the server that the identity belongs to, and its permissions there.

    Args:
        declared: the roles and streams of the bus.

    Raises:
        Permanent: an unknown role, or a subscriber with neither a team nor namespaces.
    """
    may = permissions_of(declared.role(identity.role), declared)
    if identity.role == SUBSCRIBER:
        return _subscriber(identity)
    return (HOME if identity.role in RESIDENTS else identity.role), may


def _subscriber(identity: Identity) -> tuple[str, Permissions]:
    """Members of a team share its account and consumers. A watcher is never in a team's account."""
    if identity.team:
        return identity.team, member_of(identity.team)
    if identity.watch is None:
        raise Permanent("NoFacts", "a subscriber is in a team, or watches namespaces")
    return WATCHERS, _watches(identity.watch)


def _watches(watch: Watch) -> Permissions:
    """Subscribe to live facts, publish nothing, and have no inbox. A watcher may not use consumers: the
    server's permissions cannot bind a consumer to a namespace."""
    own = ".".join(("watch", *watch.queue))
    filters = [event_filter(_ANY, namespace=name, version=_ANY) for name in watch.namespaces]
    return Permissions(subscribe=frozenset().union(*(in_groups(subject, own) for subject in filters)))
