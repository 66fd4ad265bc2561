"""The accounts of the NATS server in its configuration: JetStream's, and one for each role or team."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from paddlewheel.bus.admin.permissions import (
    FACTS,
    INSTALLER,
    OPERATOR,
    ROLES,
    SUBSCRIBER,
    Permissions,
    Role,
    inbox_prefix,
    permissions_of,
)
from paddlewheel.bus.admin.services import RESERVED_PREFIXES, reserved_names, service_role, stream_of_context
from paddlewheel.bus.admin.teams import ORIGIN_API, Team, within
from paddlewheel.bus.streams import StreamSpec, live_subject

HOME = "PADDLEWHEEL"
"""The account that holds the streams. Operators and the installer live in it, all others import from it."""

RESIDENTS = (OPERATOR, INSTALLER)
"""Roles without an account of their own."""

SYSTEM = "SYS"

AUTH = "BUS_AUTH"
"""The account of bus-auth. It shares no subject with another account."""

WATCHERS = "WATCHERS"
"""The account of subscribers without a team. It has live facts only, so that members share no consumers."""

TEAM, NAMESPACE = "@team@", "@namespace@"
"""Placeholders of `team_template`."""

SERVICE, CONTEXT = "@service@", "@context@"
"""Placeholders of `service_template`."""
STREAM = stream_of_context(CONTEXT).name
"""Placeholder of the stream of a context."""

_API = "$JS.API"
_ANSWERED_MORE_THAN_ONCE = ("$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.DIRECT.GET.")
"""Requests with more than one answer; the server keeps the reply subject open for these only."""

_PULL = "$JS.API.CONSUMER.MSG.NEXT."
_ANSWER_TIMEOUT = "10s"
"""Longer than any client waits for an answer. The server keeps the reply subject of each unanswered request
for this long, and checks as often, so for up to 20 s. Its default of two minutes would let a client with many
requests use up its memory. Pulls have no such limit: their next message may take longer."""

Config = dict[str, Any]


@dataclass(frozen=True)
class _StreamImport:
    """A subject that the account `importer` subscribes to in `HOME`; `to` is its name in the importer."""

    subject: str
    importer: str
    to: str = ""


def server_accounts() -> Config:
    """Account name to its exports and imports, without the accounts of teams."""
    tenants = {role.name: permissions_of(role) for role in ROLES if role.name not in (*RESIDENTS, SUBSCRIBER)}
    watched = _live(WATCHERS)
    imports = [each for name, may in tenants.items() for each in _imports_of(name, may)] + watched
    home = {
        "jetstream": "enabled",
        "exports": [*_services(tenants), *_stream_exports(imports)],
        "imports": [],
    }
    return {
        HOME: home,
        AUTH: {},
        **{name: _tenant(name, may, imports) for name, may in tenants.items()},
        WATCHERS: {"imports": [_import(each) for each in watched]},
        SYSTEM: {},
    }


def team_template() -> Config:
    """The account, exports and imports of one team. `TEAM` and `NAMESPACE` are replaced by names.

    `account` is the team's own account. `exports` and `imports` are added to `HOME`. `live` lists the live
    subjects of streams, each with its import for all namespaces and for one. `copy` holds the imports of the
    account and the exports of `HOME` for one more stream of facts, named `STREAM`.
    """
    team = Team(TEAM)
    api = {"service": f"{_API}.>", "accounts": [HOME], "response_type": "stream"}
    return {
        "account": {
            # Copies of streams that are no longer declared leave room for all others.
            "jetstream": {"max_streams": 2 * len(FACTS)},
            "exports": [api],
            "imports": [each for stream in FACTS for each in _fed(team, stream.name)],
        },
        "exports": [each for stream in FACTS for each in _feeds(team, stream.name)],
        "copy": {"imports": _fed(team, STREAM), "exports": _feeds(team, STREAM)},
        "imports": [{"service": {"account": TEAM, "subject": f"{_API}.>"}, "to": f"{team.api}.>"}],
        "live": [_live_entry(each) for each in _live(TEAM)],
    }


def service_template() -> Config:
    """The account, exports and imports of a declared service. `SERVICE` is replaced by its name.

    `account` is the service's own account; `exports` are added to `HOME`. `publishes` and `follows` hold the
    `imports` of its account and the `exports` of `HOME` for one context that it publishes or follows, with
    `CONTEXT` and `STREAM` for the context and its stream. `live` is the import of the live facts of a
    context, and `reserved` lists the names that a service cannot have.
    """
    bare = service_role(SERVICE)
    may = permissions_of(bare)
    return {
        "account": {
            "imports": [_use(HOME, each) for each in sorted(may.publish)],
        },
        "exports": [_service(each, [SERVICE]) for each in sorted(may.publish)],
        "publishes": _added(bare, service_role(SERVICE, publishes=[CONTEXT])),
        "follows": _added(bare, service_role(SERVICE, follows=[CONTEXT])),
        "live": _live_entry(_live_import(stream_of_context(CONTEXT), TEAM)),
        "reserved": {"names": sorted(reserved_names()), "prefixes": list(RESERVED_PREFIXES)},
    }


def _added(bare: Role, role: Role) -> Config:
    """The imports and exports that `role` needs and `bare` does not."""
    may = sorted(permissions_of(role).publish - permissions_of(bare).publish)
    return {
        "imports": [_use(HOME, each) for each in may],
        "exports": [_service(each, [SERVICE]) for each in may],
    }


def _live(importer: str) -> list[_StreamImport]:
    """Imports of the live facts of all streams."""
    return [_live_import(stream, importer) for stream in FACTS]


def _feeds(team: Team, stream: str) -> list[Config]:
    """Exports of `HOME` for one mirror: its messages, their confirmation, and the reset of its feed."""
    reset, flows = _feed_subjects(team, stream)
    services: list[Config] = [{"service": each, "accounts": [team.name]} for each in (reset, *flows)]
    return [*services, {"stream": team.delivery(stream), "accounts": [team.name]}]


def _fed(team: Team, stream: str) -> list[Config]:
    """Imports of the team for one mirror. `ORIGIN_API` keeps them apart from the API of its own JetStream."""
    reset, flows = _feed_subjects(team, stream)
    imports: list[Config] = [
        {"service": {"account": HOME, "subject": reset}, "to": reset.replace(_API, ORIGIN_API)},
        *({"service": {"account": HOME, "subject": each}} for each in flows),
    ]
    return [*imports, {"stream": {"account": HOME, "subject": team.delivery(stream)}}]


def _feed_subjects(team: Team, stream: str) -> tuple[str, list[str]]:
    """Subjects that reset the feed, and that answer its flow control in two forms."""
    name = f"{stream}.{team.feed}"
    return f"{_API}.CONSUMER.RESET.{name}", [f"$JS.FC.{name}.*", f"$JS.FC.*.*.{name}.*"]


def _imports_of(name: str, may: Permissions) -> Iterable[_StreamImport]:
    return (_StreamImport(each, name) for each in sorted(may.subscribe - {f"{inbox_prefix(name)}.>"}))


def _live_import(stream: StreamSpec, importer: str) -> _StreamImport:
    """The facts of a stream once they are stored: a repeated or refused one is not received."""
    [facts] = stream.subjects
    return _StreamImport(live_subject(stream, facts), importer, to=facts)


def _services(tenants: dict[str, Permissions]) -> list[Config]:
    """Exports of all subjects that tenants may publish, each for the accounts that may."""
    subjects = sorted({subject for may in tenants.values() for subject in may.publish})
    return [
        _service(subject, sorted(name for name, may in tenants.items() if subject in may.publish))
        for subject in subjects
    ]


def _service(subject: str, accounts: list[str]) -> Config:
    exported: Config = {"service": subject, "accounts": accounts}
    if not subject.startswith(_PULL):
        exported["response_threshold"] = _ANSWER_TIMEOUT
    if subject.startswith(_ANSWERED_MORE_THAN_ONCE):
        exported["response_type"] = "stream"
    return exported


def _stream_exports(imports: Iterable[_StreamImport]) -> list[Config]:
    importers: dict[str, set[str]] = {}
    for each in imports:
        importers.setdefault(each.subject, set()).add(each.importer)
    return [{"stream": subject, "accounts": sorted(names)} for subject, names in sorted(importers.items())]


def _tenant(name: str, may: Permissions, imports: Iterable[_StreamImport]) -> Config:
    services = [_use(HOME, subject) for subject in sorted(may.publish)]
    streams = [_import(each) for each in imports if each.importer == name]
    return {
        "imports": [*services, *streams],
    }


def _use(origin: str, subject: str) -> Config:
    return {"service": {"account": origin, "subject": subject}}


def _import(each: _StreamImport) -> Config:
    to = {"to": each.to} if each.to else {}
    return {"stream": {"account": HOME, "subject": each.subject}, **to}


def _live_entry(each: _StreamImport) -> Config:
    """A live subject, and its import for all namespaces and for one."""
    to = each.to and within(each.to, NAMESPACE)
    one = replace(each, subject=within(each.subject, NAMESPACE), to=to)
    return {"subject": each.subject, "all": _import(each), "one": _import(one)}
