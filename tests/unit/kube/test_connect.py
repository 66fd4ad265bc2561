"""Finding the API server: paths, and error messages that include what to do."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import certifi
import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.kube import connect
from paddlewheel.kube.api import path_of, selection
from paddlewheel.kube.configuration import proxy_of
from paddlewheel.kube.ports import NODES, PADDLE_JOBS, PODS, Resource

PATHS: list[tuple[Resource, tuple[str, ...], str]] = [
    (PODS, (), "/api/v1/pods"),
    (PODS, ("team",), "/api/v1/namespaces/team/pods"),
    (PODS, ("team", "p", "status"), "/api/v1/namespaces/team/pods/p/status"),
    (NODES, ("", "n"), "/api/v1/nodes/n"),
    (NODES, ("team", "n"), "/api/v1/nodes/n"),
    (PADDLE_JOBS, ("team", "j"), "/apis/batch.paddlepaddle.org/v1/namespaces/team/paddlejobs/j"),
    (PODS, ("te/am", "../p"), "/api/v1/namespaces/te%2Fam/pods/..%2Fp"),
]


@pytest.mark.parametrize(("resource", "parts", "expected"), PATHS)
def test_paths(resource: Resource, parts: tuple[str, ...], expected: str) -> None:
    assert path_of(resource, *parts) == expected


def test_an_empty_selector_is_not_sent() -> None:
    assert selection("a=b", "") == {"labelSelector": "a=b"}


def write_config(folder: Path, cluster: dict[str, str], user: Mapping[str, object]) -> Path:
    content = {
        "clusters": [{"name": "a", "cluster": cluster}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": user}],
        "current-context": "a",
    }
    config = folder / "config"
    config.write_text(json.dumps(content))
    return config


async def test_a_missing_file_is_named() -> None:
    with pytest.raises(Permanent, match=r"/nowhere/config does not exist; set KUBECONFIG"):
        await connect("/nowhere/config")


async def test_a_missing_file_beside_one_that_exists_is_ignored(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"server": "http://127.0.0.1:1"}, {})
    async with await connect(f"{tmp_path}/missing:{config}"):
        pass


async def test_credentials_in_the_kubeconfig_are_not_left_in_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client removes its files only at a regular exit, and an interrupted command has none."""
    authority = base64.b64encode(Path(certifi.where()).read_bytes()).decode()
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}
    config = write_config(tmp_path, cluster, {})
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for _ in range(2):
        async with await connect(str(config)):
            assert list(folder.iterdir()) == []


async def test_a_user_who_acts_as_another_is_refused(tmp_path: Path) -> None:
    """The commands would use the rights of the user, not those of the other one."""
    config = write_config(tmp_path, {"server": "http://127.0.0.1:1"}, {"token": "x", "as": "jane"})
    with pytest.raises(Permanent, match="context a has `as: jane`, which is not supported"):
        await connect(str(config))


@pytest.mark.parametrize("command", ["./login", "bin/login", "../{folder}/login"])
async def test_a_relative_path_of_a_credential_plugin_begins_at_the_folder_of_the_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    plugin = tmp_path / command.format(folder=tmp_path.name)
    plugin.parent.mkdir(exist_ok=True)
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "of-the-plugin"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": version, "command": command.format(folder=tmp_path.name)}}
    config = write_config(tmp_path, {"server": "http://127.0.0.1:1"}, user)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    async with await connect(str(config)) as api:
        assert api._client.configuration.api_key == {"BearerToken": "Bearer of-the-plugin"}


async def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="set KUBECONFIG to a usable file"):
        await connect(str(tmp_path))


async def test_nothing_to_go_by_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Permanent, match="set KUBECONFIG to a usable file, or run in a pod"):
        await connect()


async def test_the_variable_is_used_when_no_path_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "config"
    broken.write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setenv("KUBECONFIG", str(broken))
    with pytest.raises(Permanent, match="set KUBECONFIG to a usable file"):
        await connect()


def test_the_proxy_of_the_environment_is_used_unless_the_host_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.svc")
    assert proxy_of("https://api.example:6443") == "http://proxy.example:3128"
    assert proxy_of("https://127.0.0.1:6443") is None
    assert proxy_of("https://kubernetes.default.svc") is None
