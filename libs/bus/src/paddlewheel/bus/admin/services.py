"""Declared services: programs of other projects that publish facts of their own and follow facts.

Services of this project are in `ROLES` and their streams in `STREAMS`. The values of an installation declare
others, which become the same objects here: a role, a stream for each of its contexts, and a durable for each
context that it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paddlewheel.bus.admin.permissions import (
    FACTS,
    ROLES,
    Declared,
    Permissions,
    Role,
)
from paddlewheel.bus.admin.teams import FEED_PREFIX, READER_PREFIX
from paddlewheel.bus.amounts import AGE, SIZE, measured
from paddlewheel.bus.ports import Subscription
from paddlewheel.bus.streams import STREAMS, StreamSpec

PREFIX = "PW_"
"""Prefix of the names of streams."""
RESERVED_PREFIXES = (FEED_PREFIX, READER_PREFIX, "team-")
"""Prefixes of durables of mirrors and subscribers and of RBAC roles of teams, which no service can have."""

_CONTEXT = "[a-z][a-z0-9]*"


OthersName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=40)]
"""The name of a service or a team that an installation declares."""


class _Declaration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Publication(_Declaration):
    """Facts that one service publishes, `pw.evt.<context>.>`, and what their stream keeps."""

    context: str = Field(pattern=f"^{_CONTEXT}$", max_length=40)
    max_bytes: str = Field(pattern=f"^{SIZE}$")
    max_age: str = Field(pattern=f"^{AGE}$")


class DeclaredService(_Declaration):
    """One service.

    Args:
        name: the name of its role and of its account.
        follows: contexts whose facts it handles, each by a durable `<name>-<context>`.
    """

    name: OthersName
    publishes: tuple[Publication, ...] = ()
    follows: tuple[str, ...] = ()


def declared_with(services: Sequence[DeclaredService]) -> Declared:
    """The roles and streams of this project and of declared services."""
    made = tuple(stream_of_context(p.context, p.max_bytes, p.max_age) for s in services for p in s.publishes)
    return Declared(
        roles=(*ROLES, *(_role_of(each) for each in services)),
        streams=(*STREAMS, *made),
    )


def stream_of_context(context: str, max_bytes: str = "", max_age: str = "") -> StreamSpec:
    """The stream of a context's facts."""
    name, subject = f"{PREFIX}{context.upper()}", f"pw.evt.{context}.>"
    size, age = int(measured(max_bytes)), measured(max_age)
    return StreamSpec(name, (subject,), max_bytes=size, max_age=age, live="messages", declaration=2)


def service_role(name: str, publishes: Sequence[str] = (), follows: Sequence[str] = ()) -> Role:
    """The role of a service. It parks nothing: all dead letters share a stream, and our own consumers stop
    when that is full. Its inbox may be its client's default, because it is alone in its account."""
    followed = (stream_of_context(context) for context in follows)
    return Role(
        name,
        publishes=tuple(stream_of_context(context) for context in publishes),
        durables=tuple(
            Subscription(f"{name}-{context}", stream.name, stream.subjects)
            for context, stream in zip(follows, followed, strict=True)
        ),
        parks=False,
        extra=Permissions(subscribe=frozenset({"_INBOX.>"})),
    )


def reserved_names() -> frozenset[str]:
    """Our roles, bus-auth, and names whose Role `bus-<name>` the chart uses for another purpose."""
    return frozenset({"bus-auth", "auth", "readers", "operators", *(role.name for role in ROLES)})


def _role_of(service: DeclaredService) -> Role:
    return service_role(service.name, [p.context for p in service.publishes], service.follows)


def check_services(services: Sequence[DeclaredService]) -> Sequence[DeclaredService]:
    """The services themselves. Raises ValueError, which names a name or context that is taken or unknown."""
    names = [service.name for service in services]
    contexts = [p.context for service in services for p in service.publishes]
    for name in names:
        if name in reserved_names() or f"{name}-".startswith(RESERVED_PREFIXES) or names.count(name) > 1:
            raise ValueError(f"the name {name} is taken")
    for context in contexts:
        if context in map(_context_of, STREAMS) or contexts.count(context) > 1:
            raise ValueError(f"the context {context} is taken")
    known = {*map(_context_of, FACTS), *contexts}
    for service in services:
        for context in service.follows:
            if context not in known or service.follows.count(context) > 1:
                raise ValueError(
                    f"{service.name} follows {context}: name one of {', '.join(sorted(known))}, once"
                )
    return services


def _context_of(stream: StreamSpec) -> str:
    return stream.name.removeprefix(PREFIX).lower()


DeclaredServices = Annotated[tuple[DeclaredService, ...], AfterValidator(check_services)]
"""JSON: `[{"name": ..., "publishes": [{"context", "maxBytes", "maxAge"}], "follows": [...]}]`."""
