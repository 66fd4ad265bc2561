"""The accounts of the NATS server as its configuration has them: JetStream's, and one for each role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddlewheel.bus.admin.permissions import (
    INSTALLER,
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
"""The account that holds the streams. Operators and the installer live in it, all others import from it."""

RESIDENTS = (OPERATOR, INSTALLER)
"""Roles without an account of their own."""

SYSTEM = "SYS"

_ANSWERED_MORE_THAN_ONCE = ("$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.DIRECT.GET.")
"""Requests with more than one answer; the server keeps the reply subject open for these only."""

Config = dict[str, Any]


@dataclass(frozen=True)
class _StreamImport:
    """A subject that the account `importer` subscribes to in the account `origin`."""

    origin: str
    subject: str
    importer: str


def server_accounts() -> Config:
    """Account name to its users, exports and imports."""
    tenants = {role.name: permissions_of(role) for role in ROLES if role.name not in RESIDENTS}
    imports = [each for name, may in tenants.items() for each in _imports_of(name, may, tenants)]
    home = {
        "jetstream": "enabled",
        "users": [user for name in RESIDENTS for user in _users_of(name)],
        "exports": [*_services(tenants), *_stream_exports(HOME, imports)],
    }
    return {HOME: home, **{name: _tenant(name, may, imports) for name, may in tenants.items()}, SYSTEM: {}}


def _imports_of(name: str, may: Permissions, tenants: dict[str, Permissions]) -> Iterable[_StreamImport]:
    """From the publisher's account: the server does not re-export what a service import brought."""
    for subject in sorted(may.subscribe - {f"{inbox_prefix(name)}.>"}):
        origins = [
            _StreamImport(origin, published, name)
            for origin, other in tenants.items()
            for published in sorted(other.publish)
            if matches(subject, published)
        ]
        yield from origins or [_StreamImport(HOME, subject, name)]


def _services(tenants: dict[str, Permissions]) -> list[Config]:
    """Every subject that somebody may publish, for those alone who may."""
    subjects = sorted({subject for may in tenants.values() for subject in may.publish})
    return [
        _service(subject, sorted(name for name, may in tenants.items() if subject in may.publish))
        for subject in subjects
    ]


def _service(subject: str, accounts: list[str]) -> Config:
    exported: Config = {"service": subject, "accounts": accounts}
    if subject.startswith(_ANSWERED_MORE_THAN_ONCE):
        exported["response_type"] = "stream"
    return exported


def _stream_exports(origin: str, imports: Iterable[_StreamImport]) -> list[Config]:
    importers: dict[str, set[str]] = {}
    for each in imports:
        if each.origin == origin:
            importers.setdefault(each.subject, set()).add(each.importer)
    return [{"stream": subject, "accounts": sorted(names)} for subject, names in sorted(importers.items())]


def _tenant(name: str, may: Permissions, imports: Iterable[_StreamImport]) -> Config:
    services = [{"service": {"account": HOME, "subject": subject}} for subject in sorted(may.publish)]
    streams = [
        {"stream": {"account": each.origin, "subject": each.subject}}
        for each in imports
        if each.importer == name
    ]
    return {
        "users": _users_of(name),
        "imports": [*services, *streams],
        "exports": _stream_exports(name, imports),
    }


def _users_of(name: str) -> list[Config]:
    return [{"user": user_of(name), "permissions": permissions_of(role_named(name)).as_config()}]
