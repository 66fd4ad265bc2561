"""The subjects that each role may publish and subscribe to, computed from the declared streams.

A JetStream request names its stream and consumer in its subject, and the server ignores other names in the
body. So permissions on subjects are enough to keep services out of each other's consumers.

They would not be enough in one shared account. The server publishes its answer to the reply subject that a
request names, without checking permissions, so a client that may only read could have it delete a stream.
Every role therefore has an account of its own (`bus.admin.accounts`), which imports only the role's subjects.
A reply subject reaches no other account.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paddlewheel.bus import streams
from paddlewheel.bus.consume.dead_letters import replays
from paddlewheel.bus.ports import Subscription
from paddlewheel.bus.streams import StreamSpec
from paddlewheel.contracts.run_keys import NODE_RECORDS, RUN_RECORDS, Record
from paddlewheel.contracts.subjects import dead_letter_subject, event_filter
from paddlewheel.core.errors import Permanent

_API = "$JS.API"
WORK_SUBJECTS = "pw.work.cache.*.*.*.*.v1"
"""Every chunk of every set."""
_MAKING = ("INFO", "CREATE", "UPDATE")


@dataclass(frozen=True)
class Permissions:
    """Subjects, with NATS wildcards. A subject that is allowed and denied is refused."""

    publish: frozenset[str] = frozenset()
    publish_denied: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()

    def __or__(self, other: Permissions) -> Permissions:
        """The subjects that either allows, without the subjects that either denies."""
        return Permissions(
            self.publish | other.publish,
            self.publish_denied | other.publish_denied,
            self.subscribe | other.subscribe,
        )

    def as_config(self) -> dict[str, dict[str, list[str]]]:
        """The permissions in the form of the server's configuration file."""
        publish = {"allow": sorted(self.publish)}
        if self.publish_denied:
            publish["deny"] = sorted(self.publish_denied)
        return {"publish": publish, "subscribe": {"allow": sorted(self.subscribe)}}


@dataclass(frozen=True)
class Role:
    """One kind of client.

    Args:
        publishes: streams whose facts only this role publishes, except single facts of the role `evaluator`.
        reads: streams it reads without a durable, all of them `live`.
        durables: its own durable consumers, which the installer makes.
        parks: a message that it cannot handle becomes a dead letter, which an operator may replay.
        waits_for_streams: it is not ready before all streams on disk exist, and reports how they differ.
        answers_commands: answers the commands `pw.cmd.<role>.>`.
        extra: permissions that do not follow from the above.
    """

    name: str
    publishes: tuple[StreamSpec, ...] = ()
    reads: tuple[StreamSpec, ...] = ()
    durables: tuple[Subscription, ...] = ()
    parks: bool = True
    waits_for_streams: bool = False
    answers_commands: bool = False
    extra: Permissions = Permissions()


@dataclass(frozen=True)
class Declared:
    """The roles and streams of one bus."""

    roles: tuple[Role, ...]
    streams: tuple[StreamSpec, ...]

    @property
    def facts(self) -> tuple[StreamSpec, ...]:
        """The streams of facts. Teams of subscribers have copies of them."""
        return tuple(s for s in self.streams if all(subject.startswith("pw.evt.") for subject in s.subjects))

    @property
    def durables(self) -> tuple[Subscription, ...]:
        """The durables of all services, and those of their replays."""
        return tuple(each for role in self.roles for each in _pulled_by(role))

    def role(self, name: str) -> Role:
        """Raises Permanent for a role that is not declared."""
        for role in self.roles:
            if role.name == name:
                return role
        raise Permanent("UnknownRole", f"role {name} is none of {', '.join(r.name for r in self.roles)}")


def permissions_of(role: Role, declared: Declared | None = None) -> Permissions:
    """The permissions of a role on a bus with the roles and streams of `declared`; None means `OURS`."""
    if role.name == INSTALLER:
        return _installs(declared or OURS)
    parts = [
        Permissions(publish=_set(f"{_API}.INFO"), subscribe=_set(f"{inbox_prefix(role.name)}.>")),
        *(_publishes(stream) for stream in role.publishes),
        *(_reads(stream.name) for stream in role.reads),
        *(_pulls(durable) for durable in _pulled_by(role)),
        *(_parks(durable) for durable in role.durables if role.parks),
        role.extra,
    ]
    if role.waits_for_streams:
        parts.append(_sees_streams())
    if role.answers_commands:
        parts.append(_answers(role.name))
    return _union(parts)


def member_of(team: str) -> Permissions:
    """The permissions of a subscriber in its team's account, including the team's queue groups."""
    return permissions_of(OURS.role(SUBSCRIBER)) | Permissions(
        subscribe=in_groups("pw.evt.>", f"team.{team}")
    )


def in_groups(subject: str, own: str) -> frozenset[str]:
    """Permissions to subscribe to `subject` without a queue group, or in one named `own` or `own.<anything>`.

    Each message reaches one subscription of a group. Groups are not bound to an account: subscriptions of two
    accounts that import a subject share a group of the same name.
    """
    # The server's syntax: the group follows the subject.
    return frozenset({subject, f"{subject} {own}", f"{subject} {own}.>"})


def inbox_prefix(role: str) -> str:
    """Prefix of the inboxes of a role, to which no other role may subscribe."""
    return f"_INBOX_{role}"


def _publishes(stream: StreamSpec) -> Permissions:
    """Publish the facts, and look up what was published."""
    subjects = _set(f"{_API}.STREAM.INFO.{stream.name}", *stream.subjects)
    return Permissions(publish=subjects) | _gets(stream.name)


def _gets(stream: str) -> Permissions:
    """Read single messages of a stream."""
    direct = f"{_API}.DIRECT.GET.{stream}"
    return Permissions(publish=_set(f"{_API}.STREAM.MSG.GET.{stream}", direct, f"{direct}.>"))


def _reads(stream: str) -> Permissions:
    """Read a stream without a consumer: stored messages, and the signal that a message was stored."""
    info = Permissions(publish=_set(f"{_API}.STREAM.INFO.{stream}"), subscribe=_set(f"pw.live.{stream}.>"))
    return info | _gets(stream)


def _pulls(durable: Subscription) -> Permissions:
    """Take its messages and settle them."""
    name = f"{durable.stream}.{durable.durable}"
    calls = (f"{_API}.CONSUMER.{call}.{name}" for call in ("INFO", "MSG.NEXT"))
    return Permissions(publish=_set(f"$JS.ACK.{name}.>", *calls))


def _parks(durable: Subscription) -> Permissions:
    """Park messages as dead letters; a stopped consumer counts them."""
    count = f"{_API}.STREAM.INFO.{streams.DEAD_LETTERS.name}"
    return Permissions(publish=_set(dead_letter_subject(durable.durable), count))


def _answers(service: str) -> Permissions:
    """Commands come from operators only, so answers go to them only."""
    return Permissions(
        publish=_set(f"{inbox_prefix(OPERATOR)}.>"),
        subscribe=_set(f"pw.cmd.{service}.>"),
    )


def _sees_streams() -> Permissions:
    return Permissions(publish=frozenset(f"{_API}.STREAM.INFO.{spec.name}" for spec in streams.STREAMS))


def _installs(declared: Declared) -> Permissions:
    """Make and correct the streams and durables. Only the installer may: this permission allows having the
    server publish any message on any subject (`republish`, `deliver_subject`)."""
    consumer, facts = f"{_API}.CONSUMER", [spec.name for spec in declared.facts]
    names = [f"{each.stream}.{each.durable}" for each in declared.durables]
    return Permissions(
        publish=_set(
            f"{_API}.INFO",
            *(f"{_API}.STREAM.{call}.{spec.name}" for spec in declared.streams for call in _MAKING),
            *(f"{consumer}.{call}.{name}" for name in names for call in ("INFO", "CREATE")),
            *(f"{consumer}.CREATE.{name}.>" for name in names),
            # The mirrors of teams, and what feeds them.
            *(
                f"pw.install.*.STREAM.{call}.{name}"
                for name in facts
                for call in (*_MAKING, "DELETE", "PURGE")
            ),
            *(f"{consumer}.{call}.{name}.*" for name in facts for call in ("INFO", "CREATE", "DELETE")),
            *(f"{consumer}.NAMES.{name}" for name in facts),
        ),
        subscribe=_set(f"{inbox_prefix(INSTALLER)}.>"),
    )


def _pulled_by(role: Role) -> tuple[Subscription, ...]:
    """Its durables, each followed by that of its replays."""
    pairs = ((durable, replays(durable)) if role.parks else (durable,) for durable in role.durables)
    return tuple(each for pair in pairs for each in pair)


def _ends_work() -> Permissions:
    """Remove work that is no longer needed."""
    return Permissions(publish=_set(f"{_API}.STREAM.PURGE.{streams.WORK.name}"))


def _does_work() -> Permissions:
    """Publish chunks, and read each by its subject."""
    reads = f"{_API}.DIRECT.GET.{streams.WORK.name}.{WORK_SUBJECTS}"
    return Permissions(publish=_set(WORK_SUBJECTS, reads))


def _writes(bucket: StreamSpec, keys: str = ">", *, except_records: Iterable[str] = ()) -> Permissions:
    """Read and write a bucket.

    Args:
        keys: pattern of the keys.
        except_records: last tokens of keys that another role writes.
    """
    return Permissions(
        publish=_set(records_in(bucket, keys)),
        publish_denied=frozenset(records_in(bucket, f"*.*.{record}") for record in except_records),
    ) | _gets(bucket.name)


def records_in(bucket: StreamSpec, keys: str) -> str:
    """Subject of records of a bucket."""
    [subject] = bucket.subjects
    return subject.removesuffix(">") + keys


def _follows_facts() -> Permissions:
    """Read facts, live or stored, through any consumers; for an account that has only copies of facts."""
    reads = ("STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.>", "CONSUMER.>")
    return Permissions(
        publish=_set("$JS.ACK.>", *(f"{_API}.{call}" for call in reads)),
        # `_INBOX` is the clients' default. The account has no other members.
        subscribe=_set("pw.evt.>", "_INBOX.>"),
    )


def _operates() -> Permissions:
    """All subjects of Paddlewheel, and all of JetStream."""
    subjects = _set("pw.>", "$KV.>")
    return Permissions(publish=subjects | {f"{_API}.>", "$JS.ACK.>"}, subscribe=subjects)


def _union(parts: Iterable[Permissions]) -> Permissions:
    whole = Permissions()
    for part in parts:
        whole |= part
    return whole


def _set(*subjects: str) -> frozenset[str]:
    return frozenset(subjects)


AGENT = "cache-runtime"
EVALUATOR = "evaluator"
INSTALLER = "installer"
OPERATOR = "operator"
SUBSCRIBER = "subscriber"
MEASURED = event_filter("measurements", "revision", "measured")
"""The fact of evaluators."""
_COMMANDS = (Record.SPEC, Record.CANCEL)
"""Records of a run that agents read and dataset-controller writes."""

ROLES = (
    Role(
        "job-controller",
        publishes=(streams.JOBS, streams.MODELS, streams.PROGRESS),
        reads=(streams.DATASETS,),
        waits_for_streams=True,
        answers_commands=True,
    ),
    Role(
        "dataset-controller",
        publishes=(streams.DATASETS,),
        reads=(streams.RUNS, streams.NODES),
        waits_for_streams=True,
        answers_commands=True,
        extra=_writes(streams.RUNS, RUN_RECORDS) | _writes(streams.NODES, NODE_RECORDS) | _ends_work(),
    ),
    Role(
        "trigger-controller",
        publishes=(streams.TRIGGERS, streams.SOURCES),
        durables=tuple(
            Subscription(f"trigger-controller-{name}", stream.name, stream.subjects, max_in_flight=32)
            for name, stream in (
                ("jobs", streams.JOBS),
                ("datasets", streams.DATASETS),
                ("sources", streams.SOURCES),
            )
        ),
        reads=(streams.FIRED, streams.DEFERRED, streams.ORIGINS),
        waits_for_streams=True,
        answers_commands=True,
        extra=_writes(streams.FIRED) | _writes(streams.DEFERRED) | _writes(streams.ORIGINS),
    ),
    Role(
        "serving-controller",
        publishes=(streams.SERVING,),
        reads=(streams.MODELS, streams.MEASUREMENTS),
        waits_for_streams=True,
        answers_commands=True,
    ),
    Role(
        AGENT,
        publishes=(streams.CACHE, streams.CACHE_PROGRESS),
        reads=(streams.RUNS, streams.NODES),
        extra=_does_work()
        | _ends_work()
        | _writes(streams.RUNS, RUN_RECORDS, except_records=_COMMANDS)
        | _writes(streams.NODES, NODE_RECORDS),
    ),
    # Programs of users that measure revisions. To publish a fact needs no other permission.
    Role(EVALUATOR, extra=Permissions(publish=_set(MEASURED))),
    # It connects to the account of its team: see `bus.admin.teams`.
    Role(SUBSCRIBER, extra=_follows_facts()),
    Role(OPERATOR, extra=_operates()),
    # Its permissions follow from all other roles: `_installs`.
    Role(INSTALLER),
)
"""All roles. A service has no other durables than those declared here."""

OURS = Declared(ROLES, streams.STREAMS)
"""The roles and streams of this project. An installation may declare more: `bus.admin.services`."""
FACTS = OURS.facts
