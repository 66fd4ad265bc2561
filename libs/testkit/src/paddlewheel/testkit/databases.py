"""Databases for the metadata of a volume, beside Redis: Debian's PostgreSQL, and etcd of our own clusters.

Missing ones fail with the command that installs them; nothing is skipped.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster import binaries
from paddlewheel.testkit.shared import TestRun

_POSTGRES = Path("/usr/lib/postgresql")
_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--")
"""Its server does not run as root."""
_PASSWORD = "p@ss/w?rd#%"
"""Whatever an address may be cut at."""


@pytest.fixture(scope="session")
def new_postgres_database(test_run: TestRun) -> Callable[[str], str]:
    """Creates a database in the PostgreSQL of this test run; gives its address."""

    def start(home: Path) -> Mapping[str, object]:
        shutil.chown(home, "postgres", "postgres")
        port, data = free_ports(1)[0], home / "data"
        new = ("initdb", "--pgdata", str(data), "--auth", "trust", "--username", "postgres", "--no-sync")
        subprocess.run(_postgres(*new), check=True, capture_output=True, cwd=home)
        server = _postgres(
            "postgres", "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(home), "-F"
        )
        test_run.spawn(server, home / "postgres.log", lambda: _takes_queries(port))
        return {"port": port}

    def create(name: str) -> str:
        port = int(test_run.share("postgres", start)["port"])
        subprocess.run(_query(port, f'CREATE DATABASE "{name}"'), check=True, capture_output=True)
        return f"postgres://postgres@127.0.0.1:{port}/{name}?sslmode=disable"

    return create


@pytest.fixture(scope="session")
def etcd_address(test_run: TestRun) -> str:
    """The etcd of this test run, `USER:PASSWORD@HOST:PORT`. It requires the password.

    A volume uses a prefix of its own, as in `etcd://ADDRESS/PREFIX`.
    """

    def start(home: Path) -> Mapping[str, object]:
        program = binaries.ensure((binaries.KUBERNETES,), lambda _step, _share: None).path("etcd")
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        command = [
            str(program), "--name=default", f"--data-dir={home / 'data'}", "--log-level=warn",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync",
        ]  # fmt: skip
        address = client.removeprefix("http://")
        test_run.spawn(command, home / "etcd.log", lambda: _listens(address))
        _ask_for_a_password(client)
        return {"address": f"root:{quote(_PASSWORD, safe='')}@{address}"}

    return str(test_run.share("etcd-of-volumes", start)["address"])


def _ask_for_a_password(etcd: str) -> None:
    """Let etcd require the password of its user `root`, whose role `root` has all rights."""
    asked: Mapping[str, Mapping[str, str]] = {
        "user/add": {"name": "root", "password": _PASSWORD},
        "role/add": {"name": "root"},
        "user/grant": {"user": "root", "role": "root"},
        "enable": {},
    }
    for path, content in asked.items():
        request = urllib.request.Request(f"{etcd}/v3/auth/{path}", json.dumps(content).encode())
        urllib.request.urlopen(request, timeout=30).close()


def _postgres(program: str, *arguments: str) -> list[str]:
    found = sorted(_POSTGRES.glob(f"*/bin/{program}"))
    assert found, f"{program} is missing: apt-get install postgresql"
    return [*_AS_POSTGRES, str(found[-1]), *arguments]


def _query(port: int, text: str) -> list[str]:
    """Without the user's own configuration of psql."""
    return _postgres("psql", "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-c", text)


def _takes_queries(port: int) -> bool:
    return subprocess.run(_query(port, "SELECT 1"), check=False, capture_output=True, cwd="/").returncode == 0


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
