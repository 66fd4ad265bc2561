"""What one identity may do: its role's permissions, narrowed to its data set or to its namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paddlewheel.bus import streams
from paddlewheel.bus.admin.accounts import HOME, RESIDENTS, WATCHERS
from paddlewheel.bus.admin.permissions import (
    AGENT,
    OURS,
    SUBSCRIBER,
    WORK_PURGES,
    Declared,
    Permissions,
    in_groups,
    inbox_prefix,
    member_of,
    permissions_of,
    records_in,
    work_reads,
)
from paddlewheel.bus.admin.set_reads import API, read_api
from paddlewheel.bus.admin.set_writes import WORK_SUBJECTS, write_subjects
from paddlewheel.contracts.generated.registry import EVENTS
from paddlewheel.contracts.run_keys import set_pattern
from paddlewheel.contracts.subjects import event_filter, event_subject, token, work_filter
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
        set: the data set of an agent.
        team: of a subscriber, whose account it shares; "" = none.
        watch: what a subscriber without a team hears.
    """

    role: str
    set: SetReference | None = None
    team: str = ""
    watch: Watch | None = None


def rights(identity: Identity, declared: Declared = OURS) -> tuple[str, Permissions]:
    """The account of the server that the identity belongs to, and its permissions there.

    Args:
        declared: everything that is on the bus.

    Raises:
        Permanent: an unknown role, an agent without a data set, or a subscriber without facts.
    """
    may = permissions_of(declared.role(identity.role), declared)
    if identity.role == AGENT:
        if identity.set is None:
            raise Permanent("NoDataSet", "an agent works for one data set")
        return AGENT, within_set(may, identity.set)
    if identity.role == SUBSCRIBER:
        return _subscriber(identity)
    return (HOME if identity.role in RESIDENTS else identity.role), may


def agent_inbox(uid: str) -> str:
    """Prefix of the inboxes of a data set's agents, which those of other sets cannot read."""
    return f"{inbox_prefix(AGENT)}.{token(uid, 'uid')}"


def within_set(may: Permissions, owner: SetReference) -> Permissions:
    """Every subject that carries data names the set's uid.

    A request to JetStream that has what it wants in its body is not among them, nor is what fills streams of
    all sets: bus-auth is asked for both.
    """
    publish = {own for subject in may.publish for own in _narrowed_request(subject, owner)}
    heard = {part for subject in may.subscribe for part in _narrowed_signal(subject, owner)}
    return replace(
        may,
        publish=frozenset(publish),
        subscribe=frozenset({f"{agent_inbox(owner.uid)}.>", *heard}),
    )


def _narrowed_request(subject: str, owner: SetReference) -> set[str]:
    """Nothing of JetStream's API, but for what it has in its subject."""
    own = _own_subjects(owner)
    if subject in own:
        return set(own[subject])
    if subject.startswith(f"{API}.") and subject != f"{API}.INFO":
        return set()
    return {subject.replace(f"{read_api(_ANY)}.", f"{read_api(owner.uid)}.")}


def _own_subjects(owner: SetReference) -> Mapping[str, frozenset[str]]:
    """Subjects that agents write or read, to those of them that are one data set's."""
    asked = zip(write_subjects().values(), write_subjects(owner.uid).values(), strict=True)
    return {
        **{_only(spec.subjects): _facts(spec, owner) for spec in (streams.CACHE, streams.CACHE_PROGRESS)},
        work_reads(WORK_SUBJECTS): frozenset({work_reads(work_filter(owner.uid))}),
        WORK_PURGES: frozenset({WORK_PURGES.replace("*", owner.uid)}),
        **{subject: frozenset() for subject in write_subjects()},
        **{subject: frozenset({own}) for subject, own in asked},
    }


def _facts(stream: streams.StreamSpec, owner: SetReference) -> frozenset[str]:
    """One subject for each fact of the stream: of each subject it keeps so many messages alone."""
    told = (event_subject(fact, owner.namespace, owner.uid) for fact in EVENTS)
    return frozenset(subject for subject in told if streams.matches(_only(stream.subjects), subject))


def _narrowed_signal(subject: str, owner: SetReference) -> set[str]:
    """`pw.live.<stream>.>` tells of what is stored in a stream, by the ends of its subjects."""
    for spec in (streams.RUNS, streams.NODES):
        if subject == streams.live_subject(spec, _only(spec.subjects)):
            return {streams.live_subject(spec, records_in(spec, set_pattern(owner.uid)))}
    return set()


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


def _only(subjects: tuple[str, ...]) -> str:
    [subject] = subjects
    return subject
