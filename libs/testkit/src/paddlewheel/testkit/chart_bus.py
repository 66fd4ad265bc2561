"""A real NATS server with the configuration and the certificate that the chart renders.

Passwords replace bus-auth, unless a test runs bus-auth as well: the user of a role or a team has the rights
that bus-auth grants, and the password `PASSWORD`.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast

import nats.errors
from nats.js.errors import NotFoundError
from pydantic import TypeAdapter

from paddlewheel.bus.access import Access, StreamDuty
from paddlewheel.bus.admin.permissions import (
    INSTALLER,
    OPERATOR,
    OURS,
    SUBSCRIBER,
    inbox_prefix,
    member_of,
)
from paddlewheel.bus.admin.rights import Identity, Watch, rights
from paddlewheel.bus.admin.services import DeclaredService, DeclaredServices, declared_with
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.callout.certificates import make_authority, make_key, make_server
from paddlewheel.bus.installer import TeamSettings
from paddlewheel.bus.nats import NatsBus
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.bare_client import BareClient
from paddlewheel.testkit.charts import Manifests, named, pod_specs, render
from paddlewheel.testkit.nats import NatsProcess
from paddlewheel.testkit.wait import patiently

BUS_ANSWER_TIMEOUT_SECONDS = 90.0
"""Seconds that a server may take to answer on a busy machine."""
BUS_CA = "bus-ca"
"""ConfigMap with the authority's certificate."""
PASSWORD = "x"
_KEY = "bus-auth-key"
_WITH_CONSUMERS = (INSTALLER, OPERATOR, SUBSCRIBER)


def write_certificates(manifests: Manifests, folder: Path) -> None:
    """Write the files that bus-auth puts into the chart's Secrets: one folder for each, and `bus-ca`."""
    now = datetime.now(UTC)
    authority = make_authority(now)
    made = {
        "nats-ca": authority,
        "nats-tls-server": make_server(authority, server_names(manifests), now),
        _KEY: make_key(now),
        BUS_CA: {"ca.crt": authority["tls.crt"]},
    }
    for name, files in made.items():
        (folder / name).mkdir(parents=True)
        for file, content in files.items():
            (folder / name / file).write_bytes(content)


def server_names(manifests: Manifests) -> list[str]:
    """DNS names of the servers, for which bus-auth makes their certificate."""
    [container] = dict(pod_specs(manifests))["bus-auth"]["containers"]
    [value] = [each["value"] for each in container["env"] if each["name"] == "BUS_AUTH_SERVER_NAMES"]
    return TypeAdapter(list[str]).validate_json(value)


def teams_of(manifests: Manifests) -> tuple[Team, ...]:
    """Read them where bus-installer does."""
    found = TypeAdapter(tuple[TeamSettings, ...]).validate_json(_installer_env(manifests, "TEAMS"))
    return tuple(each.team for each in found)


def services_of(manifests: Manifests) -> tuple[DeclaredService, ...]:
    """Read them where bus-installer does."""
    return TypeAdapter(DeclaredServices).validate_json(_installer_env(manifests, "SERVICES"))


def _installer_env(manifests: Manifests, name: str) -> str:
    [container] = dict(pod_specs(manifests))["bus-installer"]["containers"]
    [value] = [each["value"] for each in container["env"] if each["name"] == f"BUS_INSTALLER_{name}"]
    return str(value)


WATCHER = "subscriber.default"
"""The user that receives the live facts of namespace `default` without a team."""

_ACCOUNT = re.compile(r'^  "([^"]+)": (\{.*\})$', re.MULTILINE)
_BUS_AUTH = re.compile(
    r"^# Public keys of bus-auth.*?^authorization \{.*?^\}\n|^  BUS_AUTH: \{$.*?^  \}\n",
    re.MULTILINE | re.DOTALL,
)


def with_passwords(config: str, teams: Iterable[Team] = (), services: Sequence[DeclaredService] = ()) -> str:
    """The chart's configuration with users and passwords in place of bus-auth."""
    declared = declared_with(services)
    names = [role.name for role in declared.roles if role.name != SUBSCRIBER]
    entries = [
        *((name, rights(Identity(name), declared)) for name in names),
        *((team.name, (team.name, member_of(team.name))) for team in teams),
        (WATCHER, rights(Identity(SUBSCRIBER, watch=Watch(frozenset({"default"}), ("default", "watcher"))))),
    ]

    def users(match: re.Match[str]) -> str:
        account = json.loads(match[2])
        account["users"] = [
            {"user": name, "password": PASSWORD, "permissions": may.as_config()}
            for name, (place, may) in entries
            if place == match[1]
        ]
        return f'  "{match[1]}": {json.dumps(account)}'

    config, parts = _BUS_AUTH.subn("", config)
    assert parts == 2, "the chart writes bus-auth's part otherwise than this reads it"
    return _ACCOUNT.sub(users, config)


def local_config(manifests: Manifests, places: dict[str, str]) -> str:
    """The chart's configuration with paths, ports and names of this machine; nothing else differs."""
    text = str(named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"])
    [server] = dict(pod_specs(manifests))["nats"]["containers"]
    for variable in server["env"]:
        if "value" in variable:
            text = text.replace(f"${variable['name']}", variable["value"])
    for there, here in places.items():
        assert there in text, there
        text = text.replace(there, here)
    return f"host: 127.0.0.1\n{text}"


@dataclass
class ChartBus(NatsProcess):
    """A NATS server with the chart's configuration.

    `home` has its `nats.conf` and its log, `folder` the certificates. `teams` and `services` are the teams of
    subscribers and the services of others in its configuration.
    """

    folder: Path
    port: int
    home: Path
    teams: tuple[Team, ...] = ()
    services: tuple[DeclaredService, ...] = ()

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """Folder with ca.crt."""
        return self.folder / BUS_CA

    def url_of(self, role: str) -> str:
        """The URL with the name and the password of a role or a team."""
        return with_user(self.url, role)

    def access(self, role: str, **changes: Any) -> Access:
        """The access in a service's settings, with a password unless `changes` has a token."""
        url = changes.pop("url", self.url)
        return Access(
            **{
                "url": url if "token_file" in changes else with_user(url, role),
                "tls_dir": str(self.authority),
                "tls_hostname": "nats",
                "inbox_prefix": inbox_prefix(role),
                "streams": _duty_of(role),
                "role": role,
                "reads": "consumers" if role in _WITH_CONSUMERS else "directly",
                "teams": self.teams if role == INSTALLER else (),
                "services": self.services if role == INSTALLER else (),
                **changes,
            }
        )


def with_user(urls: str, role: str) -> str:
    """Addresses joined by commas, with the name and the password of a role or a team if they have none."""
    return urls if "@" in urls else urls.replace("://", f"://{role}:{PASSWORD}@")


async def install(bus: ChartBus, **changes: Any) -> None:
    """Streams, durables and mirrors, as bus-installer makes them."""
    async with installing(bus, **changes):
        pass


@asynccontextmanager
async def installing(bus: ChartBus, **changes: Any) -> AsyncIterator[None]:
    """The same, and bus-installer runs while the block does: it makes what agents ask for."""
    installer = NatsBus(bus.access(INSTALLER, **changes), name=INSTALLER)
    try:
        await patiently(installer.install)
        yield
    finally:
        await installer.close()


async def sweep(operator: BareClient, teams: Iterable[Team] = ()) -> None:
    """Remove every stream with its consumers, and the copies of the teams: what an earlier test has left.

    Args:
        operator: a client that may do everything with the streams.
        teams: with accounts of their own on this server.
    """
    js = operator.jetstream()
    for info in await js.streams_info():
        name = str(info.config.name)
        for team in teams:
            with suppress(NotFoundError):
                await operator.jetstream(prefix=team.api).delete_stream(name)
        await js.delete_stream(name)


async def emptied(bus: ChartBus) -> ChartBus:
    """A server that several tests share, without the streams of the test before."""
    async with guest(bus, OPERATOR) as operator:
        await sweep(operator.client, bus.teams)
    return bus


def _duty_of(role: str) -> StreamDuty:
    """The duty of the program that has this role."""
    if role == INSTALLER:
        return "make"
    return "check" if OURS.role(role).waits_for_streams else "assume"


@contextmanager
def running(
    folder: Path, *values: str, change: Callable[[str], str] = str, passwords: bool = True
) -> Iterator[ChartBus]:
    """A server over the chart's own output while the block runs; its files lie in `folder`.

    Args:
        values: for the chart.
        change: to the server's configuration.
        passwords: False where the test starts bus-auth, too.
    """
    client, monitor = free_ports(2)
    manifests = render("paddlewheel", "crds.install=false", *values)
    write_certificates(manifests, folder)
    if not passwords:
        _server_keys(folder)
    teams, services = teams_of(manifests), services_of(manifests)
    places = {
        "/run/nats/": f"{folder}/",
        "/etc/nats-tls": str(folder / "nats-tls-server"),
        "/data": str(folder / "store"),
        "port: 4222": f"port: {client}",
        "127.0.0.1:8223": f"127.0.0.1:{monitor}",
    }
    config = local_config(manifests, places)
    config = with_passwords(config, teams, services) if passwords else config
    (folder / "nats.conf").write_text(change(config))
    started = ChartBus(folder, client, folder, teams, services)
    started.start()
    try:
        yield started
    finally:
        started.stop()


def renew_key(bus: ChartBus) -> None:
    """Another key of bus-auth where its Secret lies; the server reads it when it is started again."""
    for file, content in make_key(datetime.now(UTC)).items():
        (bus.folder / _KEY / file).write_bytes(content)
    _server_keys(bus.folder)


def _server_keys(folder: Path) -> None:
    """Write the public keys, as the container `config` does."""
    (folder / "keys.conf").write_text(_keys_of((folder / _KEY / "tls.crt").read_bytes()))


@cache
def _keys_of(certificate: bytes) -> str:
    """The public keys of a certificate. The process takes a second, so the result is cached."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-keys-") as folder:
        given = Path(folder) / "tls.crt"
        given.write_bytes(certificate)
        program = (
            "import sys, pathlib, bus_auth.server_config as c; print(c.variables(pathlib.Path(sys.argv[1])))"
        )
        command = [sys.executable, "-c", program, str(given)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tls_of(folder: Path) -> ssl.SSLContext:
    """A client's TLS context, which verifies the server with ca.crt of `folder`."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    # Check key usage and identifiers, too. This is the default from Python 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


class Guest:
    """A client that remembers what the server refused."""

    def __init__(self, client: BareClient, refusals: list[str]) -> None:
        self.client = client
        self.refusals = refusals

    async def refused_to_publish(self, subject: str, data: bytes = b"", reply: str = "") -> bool:
        """Whether the server refused it."""
        await self.client.publish(subject, data, reply=reply)
        return await self.was_refused("publish", subject)

    async def refused_to_subscribe(self, subject: str) -> bool:
        """Whether the server refused it."""
        subscription = await self.client.subscribe(subject)
        refused = await self.was_refused("subscription", subject)
        if not refused:
            await subscription.unsubscribe()
        return refused

    async def was_refused(self, what: str, subject: str) -> bool:
        """Whether the server refused the last request of that kind: it answers in order."""
        await self.client.flush(int(BUS_ANSWER_TIMEOUT_SECONDS))
        text = f'permissions violation for {what} to "{subject.lower()}"'
        refused = any(text in refusal for refusal in self.refusals)
        self.refusals.clear()
        return refused

    async def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """The answer of JetStream's API; {} when the server refused the subject."""
        return await self.send(subject, b"" if body is None else json.dumps(body).encode())

    async def send(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer to a message; {} if the server refused the subject."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        try:
            await self.client.publish(subject, data, inbox, dict(headers or {}) or None)
            if await self.was_refused("publish", subject):
                return {}
            answer = await subscription.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)
            found: dict[str, Any] = json.loads(answer.data or b"{}")
            return found
        finally:
            await subscription.unsubscribe()


@asynccontextmanager
async def entering(
    bus: ChartBus, folder: Path, *, prefix: str = "_INBOX", **who: Any
) -> AsyncIterator[Guest]:
    """Connect once. If the server refuses the client, the error of nats-py is raised.

    Args:
        folder: folder with ca.crt.
        who: `user`, and its token or password as `password`.
    """
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error).lower())

    client = BareClient()
    try:
        await client.connect(
            bus.url,
            tls=tls_of(folder),
            tls_hostname="nats",
            inbox_prefix=prefix,
            allow_reconnect=False,
            connect_timeout=int(BUS_ANSWER_TIMEOUT_SECONDS),
            error_cb=note,
            **who,
        )
        yield Guest(client, refusals)
    finally:
        transport = cast(Any, client._transport)
        if transport and transport._io_writer is transport._bare_io_writer:
            # The TLS handshake failed: nothing would wake nats-py's `close`.
            transport.close()
        else:
            with suppress(nats.errors.Error, asyncio.CancelledError, AttributeError, AssertionError):
                await client.close()


@asynccontextmanager
async def guest(bus: ChartBus, role: str, *, prefix: str = "") -> AsyncIterator[Guest]:
    """A client of a role or a team, on a server with passwords."""
    who = {"user": role, "password": PASSWORD}
    async with entering(bus, bus.authority, prefix=prefix or inbox_prefix(role), **who) as client:
        yield client
