"""Teams of subscribers: each has an account with copies of the fact streams, where it may create consumers.

A consumer can deliver to any subject of the account of its stream, so only the installer creates consumers in
the services' account. Teams read mirrors instead, each fed by a consumer that the installer creates
(docs/decisions/0027). Messages that the team's own consumers deliver stay in the team's account.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_TOKENS, _NAMESPACE = 8, 6
"""The number of tokens of a fact's subject, and the index of its namespace:
`pw.evt.<context>.<entity>.<fact>.<version>.<namespace>.<uid>`."""

ORIGIN_API = "pw.origin"
"""Prefix under which a team's mirrors reach the services' account, to have their feeds reset."""
FEED_PREFIX = "mirror-"
READER_PREFIX = "sub-"
"""Prefix of the durables that hold the positions of subscribers, so that none has the name of a service's."""


@dataclass(frozen=True)
class Team:
    """The members of one account.

    Args:
        name: name of the account, and user name with which its members connect.
        namespaces: the namespaces whose facts it receives; () means all.
        max_bytes: the largest size of each of its copies; 0 means the size of the stream.
    """

    name: str
    namespaces: tuple[str, ...] = ()
    max_bytes: int = 0

    @property
    def feed(self) -> str:
        """The consumer that feeds its mirror of a stream."""
        return f"{FEED_PREFIX}{self.name}"

    @property
    def api(self) -> str:
        """Prefix under which the installer reaches JetStream's API of this account."""
        return f"pw.install.{self.name}"

    def delivery(self, stream: str) -> str:
        """The subject on which its mirror of a stream is fed."""
        return f"pw.mirror.{self.name}.{stream}"

    def copy_bytes(self, stream_bytes: int) -> int:
        """Bytes of its copy of a stream with `stream_bytes`; 0 or less means no limit."""
        if not self.max_bytes:
            return stream_bytes
        return min(self.max_bytes, stream_bytes) if stream_bytes > 0 else self.max_bytes

    def filters(self, subjects: Iterable[str]) -> list[str]:
        """The subjects that it receives from a stream with these subjects."""
        if not self.namespaces:
            return list(subjects)
        return [within(subject, namespace) for subject in subjects for namespace in self.namespaces]


def within(subject: str, namespace: str) -> str:
    """The facts of one namespace among those of `subject`, a pattern of facts."""
    tokens = subject.removesuffix(".>").split(".")
    tokens += ["*"] * (_TOKENS - len(tokens))
    return ".".join([*tokens[:_NAMESPACE], namespace, *tokens[_NAMESPACE + 1 :]])


def namespace_of(subject: str) -> str:
    """The namespace in a subject that `within` returned."""
    return subject.split(".")[_NAMESPACE]


def fed_by(stream: str, consumer: str, deliver_subject: str | None) -> Team | None:
    """The team whose mirror of a stream a consumer feeds, without its namespaces. None for a consumer that
    feeds no mirror, whatever its name."""
    team = Team(consumer.removeprefix(FEED_PREFIX))
    is_feed = (consumer, deliver_subject) == (team.feed, team.delivery(stream))
    return team if is_feed else None
