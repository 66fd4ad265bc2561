"""What one identity may do: its role's permissions, narrowed to its data set or to its namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from paddlewheel.bus import streams
from paddlewheel.bus.admin.accounts import HOME, RESIDENTS
from paddlewheel.bus.admin.permissions import (
    AGENT,
    SUBSCRIBER,
    WORK_CONSUMERS,
    WORK_PURGES,
    Permissions,
    inbox_prefix,
    permissions_of,
    role_named,
)
from paddlewheel.contracts.run_keys import set_pattern
from paddlewheel.contracts.subjects import event_filter, token, work_filter
from paddlewheel.core.errors import Permanent

_ANY = "*"


@dataclass(frozen=True)
class SetReference:
    """A data set. Building one raises Permanent when a part is not a valid token."""

    namespace: str
    uid: str

    def __post_init__(self) -> None:
        token(self.namespace, "namespace")
        token(self.uid, "uid")


@dataclass(frozen=True)
class Identity:
    """Who is connected, as Kubernetes has it.

    Args:
        role: one that is declared.
        set: the data set of an agent.
        team: the account of a subscriber.
        namespaces: whose facts a subscriber may watch; None = all that its team has.
    """

    role: str
    set: SetReference | None = None
    team: str = ""
    namespaces: frozenset[str] | None = None


def rights(identity: Identity) -> tuple[str, Permissions]:
    """The account of the server that the identity belongs to, and its permissions there.

    Raises:
        Permanent: an unknown role, or an agent without a data set.
    """
    may = permissions_of(role_named(identity.role))
    if identity.role == AGENT:
        if identity.set is None:
            raise Permanent("NoDataSet", "an agent works for one data set")
        return AGENT, within_set(may, identity.set)
    if identity.role == SUBSCRIBER:
        narrow = identity.namespaces
        return identity.team, may if narrow is None else _of_namespaces(narrow)
    return (HOME if identity.role in RESIDENTS else identity.role), may


def agent_inbox(uid: str) -> str:
    """Prefix of the inboxes of a data set's agents, which those of other sets cannot read."""
    return f"{inbox_prefix(AGENT)}.{token(uid, 'uid')}"


def within_set(may: Permissions, owner: SetReference) -> Permissions:
    """Every subject that carries data names the set's uid.

    A lookup whose request is in its body cannot be narrowed: it reads, but writes nothing.
    """
    own = _own_subjects(owner)
    publish = {own.get(subject, subject) for subject in may.publish}
    heard = {part for subject in may.subscribe for part in _narrowed_signal(subject, own)}
    return replace(
        may,
        publish=frozenset(publish),
        subscribe=frozenset({f"{agent_inbox(owner.uid)}.>", *heard}),
    )


def _own_subjects(owner: SetReference) -> Mapping[str, str]:
    """Subjects that agents write or read, to those of them that are one data set's."""
    records = set_pattern(owner.uid)
    return {
        _only(streams.CACHE.subjects): event_filter("cache", namespace=owner.namespace, uid=owner.uid),
        _only(streams.WORK.subjects): work_filter(owner.uid),
        **{asked: asked.replace("*", owner.uid) for asked in (WORK_CONSUMERS, WORK_PURGES)},
        _only(streams.RUNS.subjects): f"$KV.{streams.RUNS_BUCKET}.{records}",
        _only(streams.NODES.subjects): f"$KV.{streams.NODES_BUCKET}.{records}",
    }


def _narrowed_signal(subject: str, own: Mapping[str, str]) -> set[str]:
    """`pw.live.<stream>.>` tells of what is stored in a stream, by the ends of its subjects."""
    for spec in (streams.RUNS, streams.NODES):
        whole = _only(spec.subjects)
        if subject == streams.live_subject(spec, whole):
            return {streams.live_subject(spec, own[whole])}
    return set()


def _of_namespaces(namespaces: Iterable[str]) -> Permissions:
    """Live facts only: what a consumer reads is not bound to a namespace by the server's permissions.

    And no inbox: others of the account get their answers there.
    """
    filters = {event_filter(_ANY, namespace=token(name, "namespace"), version=_ANY) for name in namespaces}
    return Permissions(subscribe=frozenset(filters))


def _only(subjects: tuple[str, ...]) -> str:
    [subject] = subjects
    return subject
