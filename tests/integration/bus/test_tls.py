"""TLS to a real server: what is demanded is never done without, and files may change at any time."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from tests.integration.bus.suite import bus_of

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.ports import RawMessage, Reading
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.devcluster.certs import Authority
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

OTHER_NAME = "the server's certificate is for nats, 127.0.0.1, not for else"
FACT = RawMessage("pw.evt.jobs.x", b"{}")


def issue(folder: Path, name: str) -> None:
    """A new authority: the server's files in `server`, the authority in `client`; old ones are replaced."""
    made = Authority(folder / name, name)
    identity = made.server("server", "nats", ["nats"], [IPv4Address("127.0.0.1")])
    for place in (folder / "server", folder / "client"):
        place.mkdir(exist_ok=True)
        shutil.copy(made.identity.certificate, place / "ca.crt")
    shutil.copy(identity.certificate, folder / "server/tls.crt")
    shutil.copy(identity.key, folder / "server/tls.key")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    issue(tmp_path, "first")
    return tmp_path


@pytest.fixture
async def server(nats_server: NatsServer, certificates: Path) -> NatsServer:
    """A server that speaks TLS only."""
    place = certificates / "server"
    nats_server.config["tls"] = {
        "cert_file": str(place / "tls.crt"),
        "key_file": str(place / "tls.key"),
    }
    await asyncio.to_thread(nats_server.restart)
    return nats_server


def access_of(server: NatsServer, certificates: Path) -> Access:
    return Access(server.url, tls_dir=str(certificates / "client"))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that cannot succeed end soon."""
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 1.0)


async def refused_with(bus: NatsBus, text: str) -> None:
    """Every call is refused, and says so once the server has been reached: within the time of a call, or
    later on a busy machine."""

    async def is_said() -> bool:
        with pytest.raises(Retry) as refused:
            await bus.publish_raw(FACT)
        return text in str(refused.value)

    await eventually(is_said, what=text)


async def test_a_client_that_knows_the_authority_connects(server: NatsServer, certificates: Path) -> None:
    async with bus_of(access_of(server, certificates)) as bus:
        await bus.publish_raw(FACT)
    async with bus_of(replace(access_of(server, certificates), tls_hostname="nats")) as bus:
        await bus.publish_raw(FACT)


@pytest.mark.usefixtures("hasty")
async def test_a_server_of_another_name_or_authority_is_refused(
    server: NatsServer, certificates: Path
) -> None:
    async with bus_of(replace(access_of(server, certificates), tls_hostname="else")) as bus:
        await refused_with(bus, OTHER_NAME)
        assert OTHER_NAME in bus.trouble, "readiness has the cause"
    issue(certificates, "second")
    async with bus_of(access_of(server, certificates)) as bus:
        await refused_with(
            bus, f"{certificates}/client/ca.crt is not the authority of the server's certificate"
        )


async def test_a_person_does_not_wait_for_another_certificate(server: NatsServer, certificates: Path) -> None:
    person = replace(access_of(server, certificates), ends_with_wrong_certificate=True)
    reading = Reading(("pw.evt.>",))
    async with bus_of(replace(person, tls_hostname="else")) as bus:
        with pytest.raises(Permanent, match=re.escape(OTHER_NAME)):
            await anext(bus.read(reading))
        with pytest.raises(Permanent, match="NATS_TLS_HOSTNAME"):
            await bus.check()
    issue(certificates, "second")
    async with bus_of(person) as bus:
        with pytest.raises(
            Permanent, match=r"is not the authority of the server's certificate.*NATS_TLS_DIR"
        ):
            await anext(bus.read(replace(reading, durable="sub-mine")))


@pytest.mark.usefixtures("hasty")
async def test_there_is_no_fallback_to_plain_text(nats_server: NatsServer, certificates: Path) -> None:
    async with bus_of(access_of(nats_server, certificates)) as bus:
        await refused_with(bus, "the server offers no TLS, but nats_tls_dir requires it")


@pytest.mark.usefixtures("hasty")
async def test_a_missing_file_is_reported_and_awaited(server: NatsServer, certificates: Path) -> None:
    there, away = certificates / "client/ca.crt", certificates / "away"
    there.rename(away)
    async with bus_of(access_of(server, certificates)) as bus:
        await refused_with(bus, f"nats_tls_dir: {there}: No such file")
        away.rename(there)
        await eventually(bus.healthy)


@pytest.mark.usefixtures("hasty")
async def test_an_invalid_certificate_file_is_reported(server: NatsServer, certificates: Path) -> None:
    (certificates / "client/ca.crt").write_text("nonsense")
    async with bus_of(access_of(server, certificates)) as bus:
        await refused_with(bus, f"nats_tls_dir: {certificates}/client/ca.crt")


async def test_certificates_of_a_new_authority_are_adopted_without_a_restart(
    server: NatsServer, certificates: Path
) -> None:
    async with bus_of(access_of(server, certificates)) as bus:
        await bus.publish_raw(FACT)
        issue(certificates, "second")
        await asyncio.to_thread(server.restart)
        await eventually(bus.healthy)
        await bus.publish_raw(FACT)
        (certificates / "client/ca.crt").unlink()
        await asyncio.to_thread(server.restart)
        await eventually(
            lambda: bus._connection.trouble and "ca.crt: No such file" in bus._connection.trouble
        )
        issue(certificates, "third")
        await asyncio.to_thread(server.restart)
        await eventually(bus.healthy)
