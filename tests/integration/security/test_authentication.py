"""Who gets into the bus at all, and whom clients take for the bus."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import nats.errors
import pytest
from nats.aio.client import Client

from paddlewheel.bus.admin.permissions import ROLES, SUBSCRIBER
from paddlewheel.testkit.chart_bus import ChartBus, entering, guest

REFUSED = (ssl.SSLError, nats.errors.Error, ConnectionError, EOFError)


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """The folder of another authority."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "ca.crt")]
    command = ["openssl", "req", "-x509", *curve, *files, "-subj", "/CN=stranger", "-days", "1"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("role", [role.name for role in ROLES])
async def test_every_role_gets_in(bus: ChartBus, role: str) -> None:
    async with guest(bus, role) as client:
        assert client.client.is_connected


@pytest.mark.parametrize(
    "who", [{}, {"user": "operator", "password": "guess"}, {"user": "nobody", "password": "x"}]
)
async def test_nobody_else_gets_in(bus: ChartBus, who: dict[str, str]) -> None:
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
        async with entering(bus, bus.authority, **who):
            pass


async def test_nobody_gets_in_without_tls(bus: ChartBus) -> None:
    client = Client()
    with pytest.raises(REFUSED):
        await client.connect(bus.url.replace("tls", "nats"), allow_reconnect=False, connect_timeout=60)


async def test_a_client_refuses_a_server_of_another_authority(bus: ChartBus, stranger: Path) -> None:
    with pytest.raises(REFUSED):
        async with entering(bus, stranger, user=SUBSCRIBER, password="x"):
            pass
