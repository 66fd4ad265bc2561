"""Teams of subscribers: an account each, with copies of the fact streams to consume at will.

A consumer delivers to any subject of the account its stream is in, so only the installer makes one where the
services live. A team's streams are mirrors instead, each fed by a consumer that the installer makes
(docs/decisions/0027); what the team's own consumers deliver stays in its account.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_TOKENS, _NAMESPACE = 8, 6
"""Of a fact's subject, `pw.evt.<context>.<entity>.<fact>.<version>.<namespace>.<uid>`: which is which."""

ORIGIN_API = "pw.origin"
"""Prefix under which a team's mirrors reach the services' account, to have their feeds reset."""
FEED_PREFIX = "mirror-"
READER_PREFIX = "sub-"
"""Of the durables by which subscribers remember their positions, so that none is ever a service's own."""


@dataclass(frozen=True)
class Team:
    """Who shares an account.

    Args:
        name: of the account, and of the user that its members connect as.
        namespaces: whose facts it gets; () means all.
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
        """The size of its copy of a stream with this size, of which 0 or less means no limit."""
        if not self.max_bytes:
            return stream_bytes
        return min(self.max_bytes, stream_bytes) if stream_bytes > 0 else self.max_bytes

    def filters(self, subjects: Iterable[str]) -> list[str]:
        """What it gets of a stream with these subjects."""
        if not self.namespaces:
            return list(subjects)
        return [within(subject, namespace) for subject in subjects for namespace in self.namespaces]


def within(subject: str, namespace: str) -> str:
    """The facts of one namespace among those of `subject`, a pattern of facts."""
    tokens = subject.removesuffix(".>").split(".")
    tokens += ["*"] * (_TOKENS - len(tokens))
    return ".".join([*tokens[:_NAMESPACE], namespace, *tokens[_NAMESPACE + 1 :]])


def namespace_of(subject: str) -> str:
    """The namespace in a subject that `within` has made."""
    return subject.split(".")[_NAMESPACE]


def fed_by(stream: str, consumer: str, deliver_subject: str | None) -> Team | None:
    """The team whose mirror of a stream a consumer feeds, without its namespaces. None for a consumer of
    others, which may have any name."""
    team = Team(consumer.removeprefix(FEED_PREFIX))
    is_feed = (consumer, deliver_subject) == (team.feed, team.delivery(stream))
    return team if is_feed else None
