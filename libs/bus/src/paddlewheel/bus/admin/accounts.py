"""The accounts of the NATS server as its configuration has them: JetStream's, and one for each role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddlewheel.bus.admin.permissions import (
    OPERATOR,
    ROLES,
    Permissions,
    inbox_prefix,
    permissions_of,
    role_named,
    user_of,
)
from paddlewheel.bus.streams import matches

HOME = "PADDLEWHEEL"
"""The account that holds the streams. Operators live in it, everybody else only reaches into it."""

SYSTEM = "SYS"

_ANSWERED_OFTEN = ("$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.DIRECT.GET.")
"""Requests with more than one answer; the server keeps the way back open for these only."""

Config = dict[str, Any]


@dataclass(frozen=True)
class _Heard:
    """A subject that reaches `listener` from the account `origin`."""

    origin: str
    subject: str
    listener: str


def server_accounts() -> Config:
    """Account name to its users, exports and imports."""
    guests = {role.name: permissions_of(role) for role in ROLES if role.name != OPERATOR}
    heard = [each for name, may in guests.items() for each in _heard_by(name, may, guests)]
    home = {
        "jetstream": "enabled",
        "users": _users_of(OPERATOR),
        "exports": [*_services(guests), *_told(HOME, heard)],
    }
    return {HOME: home, **{name: _guest(name, may, heard) for name, may in guests.items()}, SYSTEM: {}}


def _heard_by(name: str, may: Permissions, guests: dict[str, Permissions]) -> Iterable[_Heard]:
    """What comes by a service is not passed on by the server: facts are heard where they are published."""
    for subject in sorted(may.subscribe - {f"{inbox_prefix(name)}.>"}):
        origins = [
            _Heard(origin, told, name)
            for origin, other in guests.items()
            for told in sorted(other.publish)
            if matches(subject, told)
        ]
        yield from origins or [_Heard(HOME, subject, name)]


def _services(guests: dict[str, Permissions]) -> list[Config]:
    """Every subject that somebody may publish, for those alone who may."""
    subjects = sorted({subject for may in guests.values() for subject in may.publish})
    return [
        _service(subject, sorted(name for name, may in guests.items() if subject in may.publish))
        for subject in subjects
    ]


def _service(subject: str, accounts: list[str]) -> Config:
    exported: Config = {"service": subject, "accounts": accounts}
    if subject.startswith(_ANSWERED_OFTEN):
        exported["response_type"] = "stream"
    return exported


def _told(origin: str, heard: Iterable[_Heard]) -> list[Config]:
    listeners: dict[str, set[str]] = {}
    for each in heard:
        if each.origin == origin:
            listeners.setdefault(each.subject, set()).add(each.listener)
    return [{"stream": subject, "accounts": sorted(names)} for subject, names in sorted(listeners.items())]


def _guest(name: str, may: Permissions, heard: Iterable[_Heard]) -> Config:
    services = [{"service": {"account": HOME, "subject": subject}} for subject in sorted(may.publish)]
    told = [
        {"stream": {"account": each.origin, "subject": each.subject}}
        for each in heard
        if each.listener == name
    ]
    return {"users": _users_of(name), "imports": [*services, *told], "exports": _told(name, heard)}


def _users_of(name: str) -> list[Config]:
    return [{"user": user_of(name), "permissions": permissions_of(role_named(name)).as_config()}]
