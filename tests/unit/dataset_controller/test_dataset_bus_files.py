"""The files with which runtime pods connect to the bus: an authority, a token of their own, credentials."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataset_controller.builders import RUNTIME, make_set, spec_of

from dataset_controller.config import Settings
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import BusFiles, RuntimeConfig

TOKEN = RuntimeConfig("runtime:1", "tls://nats:4222", bus=BusFiles("bus-ca", tokens=True))


def pod_of(config: RuntimeConfig) -> dict[str, Any]:
    own = make_set()
    pod: dict[str, Any] = render.pod_template(own.identity, RUNTIME, spec_of(own), config)["spec"]
    return pod


def environment_of(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}


def test_without_one_nothing_is_mounted() -> None:
    pod = pod_of(RuntimeConfig("runtime:1", "nats://nats:4222"))

    assert not [v for v in pod["volumes"] if v["name"] == "bus"]
    assert "CACHE_RUNTIME_NATS_TLS_DIR" not in environment_of(pod)


def test_with_tokens_the_pods_get_the_authority_and_a_token_of_their_own_and_no_key() -> None:
    pod = pod_of(TOKEN)
    env = environment_of(pod)
    [volume] = [v for v in pod["volumes"] if v["name"] == "bus"]
    [authority, token] = volume["projected"]["sources"]

    assert authority == {"configMap": {"name": "bus-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    assert token["serviceAccountToken"] == {
        "path": "token",
        "audience": "paddlewheel-bus",
        "expirationSeconds": 3600,
    }
    assert env["CACHE_RUNTIME_NATS_TOKEN_FILE"] == f"{env['CACHE_RUNTIME_NATS_TLS_DIR']}/token"
    assert pod["automountServiceAccountToken"] is False


def test_agents_have_nothing_to_reach_kubernetes_with() -> None:
    pod = pod_of(TOKEN)

    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert [v["name"] for v in pod["volumes"] if "projected" in v] == ["bus"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (BusFiles(), []),
        (BusFiles("bus-ca"), ["NATS_TLS_DIR"]),
        (BusFiles(credentials="mine"), ["NATS_CREDS_FILE"]),
        (BusFiles("bus-ca", credentials="mine"), ["NATS_TLS_DIR", "NATS_CREDS_FILE"]),
        (BusFiles("bus-ca", tokens=True), ["NATS_TLS_DIR", "NATS_TOKEN_FILE"]),
    ],
)
def test_a_server_of_ones_own_gets_no_token(files: BusFiles, expected: list[str]) -> None:
    """Such a server could show the token to the server of the chart, and act as an agent there."""
    pod = pod_of(RuntimeConfig("runtime:1", "tls://bus:4222", bus=files))
    bus = ("NATS_TLS_DIR", "NATS_TOKEN_FILE", "NATS_CREDS_FILE")
    assert [name for name in bus if f"CACHE_RUNTIME_{name}" in environment_of(pod)] == sorted(
        expected, key=bus.index
    )
    assert len([v for v in pod["volumes"] if v["name"] == "bus"]) == bool(expected)


def test_the_settings_name_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().runtime.bus == BusFiles()
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_AUTHORITY", "bus-ca")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_TOKENS", "true")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_CREDENTIALS", "mine")
    assert Settings().runtime.bus == BusFiles("bus-ca", tokens=True, credentials="mine")
