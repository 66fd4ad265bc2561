"""Where a command finds the bus, and what becomes of the token it borrows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddlewheel.cli import bus_access as module
from paddlewheel.cli.bus_access import bus_access, cluster_bus_access
from paddlewheel.cli.target import Target
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.certs import Authority

VARIABLES = ("NATS_URL", "NATS_TLS_DIR", "NATS_TLS_HOSTNAME", "NATS_CREDS")


KUBECTL = """#!/bin/sh
echo "$@" >> {folder}/asked
[ "$1 $2" = "create token" ] && [ -e {folder}/token ] && exec cat {folder}/token
case "$3" in */configmaps/bus-ca) [ -e {folder}/authority.json ] && exec cat {folder}/authority.json;; esac
cat {folder}/error >&2
exit 1
"""


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A kubectl that answers with a file's content or its own error, and a forwarded port."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    (tmp_path / "authority.json").write_text(json.dumps({"data": {"ca.crt": "authority"}}))
    (tmp_path / "token").write_text("a.token.made\n")
    (tmp_path / "error").write_text("Error from server (Forbidden): tokens are forbidden")
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL.format(folder=tmp_path))
    kubectl.chmod(0o755)
    monkeypatch.setattr("paddlewheel.cli.tools.tool", lambda _name: str(kubectl))

    @asynccontextmanager
    async def forwarded(*_arguments: object) -> AsyncIterator[int]:
        yield 1234

    monkeypatch.setattr(module, "port_forward", forwarded)
    return tmp_path


WHERE = Target("kubeconfig", None)


async def test_it_is_gone_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster_bus_access(WHERE, role="operator") as access:
            raise ZeroDivisionError

    assert not Path(access.tls_dir).exists()


async def test_a_token_of_the_role_is_borrowed_for_the_time_of_the_block(cluster: Path) -> None:
    async with cluster_bus_access(WHERE, role="subscriber") as access:
        folder = Path(access.tls_dir)
        assert Path(access.token_file).read_text() == "a.token.made"
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert {path.name for path in folder.iterdir()} >= {"ca.crt", "token"}
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (access.url, access.role) == ("tls://127.0.0.1:1234", "subscriber")
        assert (access.tls_hostname, access.inbox_prefix) == ("nats", "_INBOX_subscriber")

    assert not folder.exists()
    asked = (cluster / "asked").read_text()
    assert "create token subscriber --namespace paddle-system --audience paddlewheel-bus " in asked


async def test_a_token_that_may_not_be_made_is_the_commands_error(cluster: Path) -> None:
    (cluster / "token").unlink()

    with pytest.raises(Permanent, match="tokens are forbidden"):
        async with cluster_bus_access(WHERE, role="operator"):
            raise AssertionError


def fail(cluster: Path, error: str) -> None:
    (cluster / "authority.json").unlink()
    (cluster / "error").write_text(error)


async def test_a_bus_that_is_not_the_charts_is_reached_by_its_address(cluster: Path) -> None:
    fail(cluster, 'Error from server (NotFound): configmaps "bus-ca" not found')

    with pytest.raises(Permanent, match=r"NoBus: ConfigMap paddle-system/bus-ca does not exist.*NATS_URL"):
        async with cluster_bus_access(WHERE, role="operator"):
            pass


@pytest.mark.parametrize(
    ("where", "named", "remedy"),
    [
        (
            Target("/my/config", None),
            "KUBECONFIG=/my/config",
            "start that cluster, or change KUBECONFIG",
        ),
        (Target("/my/config", None, "--kubeconfig"), "--kubeconfig=/my/config", "start that cluster"),
        (
            Target("/its/config", "demo"),
            "embedded cluster demo",
            "start it with `paddlewheel cluster up --name demo`",
        ),
    ],
)
async def test_a_cluster_that_does_not_answer_is_named_by_where_it_is_from_with_a_remedy(
    cluster: Path, where: Target, named: str, remedy: str
) -> None:
    log = 'E1121 20:33:27.541546   11935 memcache.go:381] "Couldn\'t get current server API group list"\n'
    fail(cluster, f"{log}The connection to the server 127.0.0.1:1 was refused\n")

    with pytest.raises(Permanent) as failed:
        async with cluster_bus_access(where, role="subscriber"):
            pass

    refusal = "kubectl exited with 1: The connection to the server 127.0.0.1:1 was refused"
    assert str(failed.value).startswith(f"ClusterUnreachable: {named}: {refusal}; ")
    assert remedy in str(failed.value)


async def test_the_environment_goes_before_the_cluster(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "tls://bus.example:4222")
    Authority(cluster / "certificate", "test")
    monkeypatch.setenv("NATS_TLS_DIR", str(cluster / "certificate"))

    async with bus_access(None, role="operator") as access:
        assert (access.url, access.tls_dir) == ("tls://bus.example:4222", str(cluster / "certificate"))
        assert (access.role, access.inbox_prefix) == ("operator", "_INBOX_operator")

    assert not (cluster / "asked").exists()
