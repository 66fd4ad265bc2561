"""How the certificate with which runtime pods connect to the bus reaches them."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import NOW, make_observed, spec_of

from dataset_controller.bus_certificate import BusCertificate, bus_files
from dataset_controller.config import Settings
from dataset_controller.domain.names import BUS_FILES, SECRET
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import Children, ObservedSet, RuntimeConfig
from dataset_controller.domain.sampleset.plan import plan
from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Create, Patch

CONFIG = RuntimeConfig("runtime:1", "tls://nats:4222", has_bus_certificate=True)
FIRST = {name: f"{name} one" for name in BUS_FILES}


def observed(certificate: dict[str, str] | None, secret: Object | None = None) -> ObservedSet:
    return make_observed(children=Children(secret=secret), bus_certificate=certificate)


def secret_actions(seen: ObservedSet) -> list[Create | Patch]:
    actions = plan(seen, CONFIG, NOW).actions
    return [a for a in actions if isinstance(a, Create | Patch) and a.kind == SECRET]


def made_secret(certificate: dict[str, str]) -> Object:
    [action] = secret_actions(observed(certificate))
    assert isinstance(action, Create)
    return {**action.manifest, "metadata": {**action.manifest["metadata"], "resourceVersion": "2"}}


def certificate_in(data: dict[str, str]) -> dict[str, str]:
    names = {name: data.get(f"bus.{name}", "") for name in BUS_FILES}
    return {name: base64.b64decode(value).decode() for name, value in names.items()}


def test_the_sets_own_secret_contains_it() -> None:
    assert certificate_in(made_secret(FIRST)["data"]) == FIRST


def test_a_new_certificate_replaces_the_old_one() -> None:
    second = {name: f"{name} two" for name in BUS_FILES}

    [action] = secret_actions(observed(second, made_secret(FIRST)))

    assert isinstance(action, Patch)
    assert certificate_in(dict(action.patch["data"])) == second


def test_the_same_certificate_is_not_written_again() -> None:
    assert secret_actions(observed(FIRST, made_secret(FIRST))) == []


@pytest.mark.parametrize("secret", [None, made_secret(FIRST)])
def test_while_it_cannot_be_read_the_secret_stays_as_it_is(secret: Object | None) -> None:
    assert secret_actions(observed(None, secret)) == []


def pod_of(config: RuntimeConfig) -> dict[str, Any]:
    own = observed(FIRST).sample_set
    pod: dict[str, Any] = render.stateful_set(own.identity, spec_of(own), config, 1)["spec"]["template"][
        "spec"
    ]
    return pod


def test_the_pods_find_it_in_a_folder_of_its_own() -> None:
    pod = pod_of(CONFIG)
    [container] = pod["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}

    [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == env["CACHE_RUNTIME_NATS_TLS_DIR"]]
    [volume] = [v for v in pod["volumes"] if v["name"] == mount["name"]]

    assert mount["readOnly"] is True
    assert {item["path"] for item in volume["secret"]["items"]} == set(BUS_FILES)
    assert {item["key"] for item in volume["secret"]["items"]} <= set(made_secret(FIRST)["data"])


def test_without_one_nothing_is_mounted() -> None:
    pod = pod_of(replace(CONFIG, has_bus_certificate=False))

    assert not [v for v in pod["volumes"] if v["name"] == "bus"]
    assert "CACHE_RUNTIME_NATS_TLS_DIR" not in {e["name"] for e in pod["containers"][0]["env"]}


def test_with_tokens_the_pods_get_the_authority_and_a_token_of_their_own_and_no_key() -> None:
    pod = pod_of(replace(CONFIG, has_bus_token=True))
    [container] = pod["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    [volume] = [v for v in pod["volumes"] if v["name"] == "bus"]
    [secret, token] = volume["projected"]["sources"]

    assert [item["path"] for item in secret["secret"]["items"]] == ["ca.crt"]
    assert token["serviceAccountToken"] == {
        "path": "token",
        "audience": "paddlewheel-bus",
        "expirationSeconds": 3600,
    }
    assert env["CACHE_RUNTIME_NATS_TOKEN_FILE"] == f"{env['CACHE_RUNTIME_NATS_TLS_DIR']}/token"
    assert pod["automountServiceAccountToken"] is False


def test_with_tokens_no_key_reaches_the_sets_secret(tmp_path: Path) -> None:
    for name, text in FIRST.items():
        (tmp_path / name).write_text(text)

    read = BusCertificate(tmp_path, bus_files(has_token=True)).read()

    assert set(read) == {"ca.crt"}
    assert not [name for name in made_secret(dict(read))["data"] if name.endswith((".key", "tls.crt"))]


def test_agents_have_nothing_to_reach_kubernetes_with() -> None:
    pod = pod_of(CONFIG)

    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert "serviceAccountName" not in pod
    assert not [v for v in pod["volumes"] if "projected" in v]


def test_an_observation_does_not_reveal_it() -> None:
    assert "tls.key one" not in repr(observed(FIRST))


def test_it_is_read_again_every_time(tmp_path: Path) -> None:
    for name, text in FIRST.items():
        (tmp_path / name).write_text(text)
    certificate = BusCertificate(tmp_path)
    assert certificate.read() == FIRST

    (tmp_path / "tls.crt").write_text("two")

    assert certificate.read()["tls.crt"] == "two"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Retry, match=r"ca\.crt"):
        BusCertificate(tmp_path).read()


def test_no_folder_means_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BusCertificate(None).read() == {}
    assert Settings().runtime.has_bus_certificate is False
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_TLS_DIR", "/etc/bus")
    assert Settings().runtime.has_bus_certificate is True
