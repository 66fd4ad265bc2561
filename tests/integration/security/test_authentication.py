"""Who gets into the bus at all, and whom clients take for the bus."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import nats.errors
import pytest
from nats.aio.client import Client

from paddlewheel.bus.admin.permissions import ROLES
from paddlewheel.testkit.chart_bus import ChartBus, entering, guest, tls_of

REFUSED = (ssl.SSLError, nats.errors.Error, ConnectionError, EOFError)


def sign(folder: Path, name: str, authority: Path) -> Path:
    """A client certificate of one's own, signed with a given `tls.crt` and `tls.key`."""
    folder.mkdir()
    key, request, made = (folder / file for file in ("tls.key", "request.pem", "tls.crt"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key]
    openssl(
        "req",
        "-new",
        *curve,
        "-subj",
        f"/CN={name}",
        "-addext",
        f"subjectAltName=DNS:{name}",
        "-out",
        request,
    )
    ours = ["-CA", authority / "tls.crt", "-CAkey", authority / "tls.key"]
    openssl("x509", "-req", "-in", request, *ours, "-copy_extensions", "copy", "-days", "1", "-out", made)
    return folder


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Another authority."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    openssl("req", "-x509", *curve, *files, "-subj", "/CN=stranger", "-days", "1")
    return folder


@pytest.mark.parametrize("role", [role.name for role in ROLES])
async def test_every_role_gets_in_with_its_certificate(bus: ChartBus, role: str) -> None:
    async with guest(bus, role) as client:
        assert client.client.is_connected


async def test_nobody_gets_in_without_a_certificate(bus: ChartBus, tmp_path: Path) -> None:
    with pytest.raises(REFUSED):
        async with entering(bus, tmp_path, authority=bus.certificate("subscriber")):
            pass


async def test_nobody_gets_in_without_tls(bus: ChartBus) -> None:
    client = Client()
    with pytest.raises(REFUSED):
        await client.connect(bus.url.replace("tls", "nats"), allow_reconnect=False, connect_timeout=60)


async def test_another_authoritys_certificate_is_refused(
    bus: ChartBus, stranger: Path, tmp_path: Path
) -> None:
    forged = sign(tmp_path / "forged", "operator.paddlewheel", stranger)

    with pytest.raises(REFUSED):
        async with entering(bus, forged, authority=bus.certificate("subscriber")):
            pass


async def test_an_unknown_name_is_refused_even_with_our_authoritys_certificate(
    bus: ChartBus, tmp_path: Path
) -> None:
    unknown = sign(tmp_path / "unknown", "somebody.paddlewheel", bus.folder / "nats-ca")

    with pytest.raises(nats.errors.Error, match="Authorization Violation"):
        async with entering(bus, unknown, authority=bus.certificate("subscriber")):
            pass


async def test_a_known_name_of_our_authority_gets_in(bus: ChartBus, tmp_path: Path) -> None:
    """So that the two refusals above are not for another reason."""
    known = sign(tmp_path / "known", "subscriber.paddlewheel", bus.folder / "nats-ca")

    async with entering(bus, known, authority=bus.certificate("subscriber")) as client:
        assert client.client.is_connected


async def test_the_servers_own_certificate_is_no_client(bus: ChartBus) -> None:
    with pytest.raises(nats.errors.Error, match="Authorization Violation"):
        async with entering(bus, bus.certificate("server")):
            pass


async def test_a_roles_certificate_does_not_make_a_server(bus: ChartBus) -> None:
    """A client that expects the bus refuses whoever shows the certificate of an agent."""
    context = tls_of(bus.certificate("subscriber"))
    agent = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    agent.load_cert_chain(
        bus.certificate("cache-runtime") / "tls.crt", bus.certificate("cache-runtime") / "tls.key"
    )

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(context, agent, "nats")

    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(bus.certificate("server") / "tls.crt", bus.certificate("server") / "tls.key")
    shake_hands(context, own, "nats.paddle-system.svc")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Both ends in memory. Raises what the client says of the server's certificate."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
