"""Where a command finds the bus, and what becomes of the certificate it borrows."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddlewheel.cli import bus_access as module
from paddlewheel.cli.bus_access import bus_access, cluster_bus_access
from paddlewheel.cli.target import Target
from paddlewheel.core.errors import Permanent

FILES = {"ca.crt": b"authority", "tls.crt": b"certificate", "tls.key": b"key"}
VARIABLES = ("NATS_URL", "NATS_TLS_DIR", "NATS_TLS_HOSTNAME", "NATS_CREDS")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A kubectl that answers with what lies in a file, and a forwarded port."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    answer = tmp_path / "secret.json"
    answer.write_text(secret(FILES))
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {answer}\n')
    kubectl.chmod(0o755)
    monkeypatch.setattr("paddlewheel.cli.tools.tool", lambda _name: str(kubectl))

    @asynccontextmanager
    async def forwarded(*_arguments: object) -> AsyncIterator[int]:
        yield 1234

    monkeypatch.setattr(module, "port_forward", forwarded)
    return tmp_path


def secret(files: dict[str, bytes]) -> str:
    return json.dumps({"data": {name: base64.b64encode(value).decode() for name, value in files.items()}})


WHERE = Target("kubeconfig", None)


async def test_the_clusters_certificate_is_borrowed_for_the_time_of_the_block(cluster: Path) -> None:
    async with cluster_bus_access(WHERE, role="subscriber") as access:
        folder = Path(access.tls_dir)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert (access.url, access.tls_hostname) == ("tls://127.0.0.1:1234", "nats")
        assert (access.inbox_prefix, access.makes_streams) == ("_INBOX_subscriber", False)

    assert not folder.exists()
    assert "get secret nats-tls-subscriber" in (cluster / "asked").read_text()


async def test_it_is_gone_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster_bus_access(WHERE, role="operator") as access:
            raise ZeroDivisionError

    assert not Path(access.tls_dir).exists()


async def test_a_bus_without_tls_is_reached_plainly(cluster: Path) -> None:
    (cluster / "secret.json").write_text("")

    async with cluster_bus_access(WHERE, role="subscriber") as access:
        assert (access.url, access.tls_dir) == ("nats://127.0.0.1:1234", "")


async def test_what_a_secret_lacks_is_named(cluster: Path) -> None:
    (cluster / "secret.json").write_text(secret({"ca.crt": b"authority", "tls.crt": b"certificate"}))

    with pytest.raises(Permanent, match=r"nats-tls-operator has no tls\.key"):
        async with cluster_bus_access(WHERE, role="operator"):
            pass


async def test_the_environment_goes_before_the_cluster(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "tls://bus.example:4222")
    monkeypatch.setenv("NATS_TLS_DIR", "/my/certificate")

    async with bus_access(None, role="subscriber") as access:
        assert (access.url, access.tls_dir) == ("tls://bus.example:4222", "/my/certificate")

    assert not (cluster / "asked").exists()


async def test_somebody_must_be_named() -> None:
    with pytest.raises(Permanent, match="NATS_URL"):
        async with bus_access(None, role="subscriber"):
            pass
