"""How runtime pods come by the certificate with which they enter the bus."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dataset_controller.bus_certificate import BusCertificate
from dataset_controller.config import Settings
from dataset_controller.domain.actions import Create, Patch
from dataset_controller.domain.names import BUS_FILES, set_finalizer
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import Children, ObservedSet, RuntimeConfig
from dataset_controller.domain.sampleset.plan import plan
from dataset_controller.domain.sampleset.spec import read_spec
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.samplesets import make_sample_set, make_secret

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = RuntimeConfig("runtime:1", "tls://nats:4222", has_bus_certificate=True)
FIRST = {name: f"{name} one" for name in BUS_FILES}


def observed(certificate: dict[str, str], secret: Any = None) -> ObservedSet:
    obj = make_sample_set()
    obj["metadata"] |= {"uid": "u", "resourceVersion": "1", "finalizers": [set_finalizer("digits")]}
    return ObservedSet(
        obj,
        engine_secret=make_secret("engine"),
        source_secret=make_secret("source"),
        children=Children(secret=secret),
        bus_certificate=certificate,
    )


def made_secret(certificate: dict[str, str]) -> Any:
    [made] = [
        a.manifest for a in plan(observed(certificate), CONFIG, NOW).actions
        if isinstance(a, Create) and a.kind == "Secret"
    ]  # fmt: skip
    return {**made, "metadata": {**made["metadata"], "resourceVersion": "2"}}


def certificate_in(data: dict[str, str]) -> dict[str, str]:
    names = {name: data.get(f"bus.{name}", "") for name in BUS_FILES}
    return {name: base64.b64decode(value).decode() for name, value in names.items()}


def test_the_sets_own_secret_holds_it() -> None:
    assert certificate_in(made_secret(FIRST)["data"]) == FIRST


def test_a_new_certificate_replaces_the_old_one() -> None:
    second = {name: f"{name} two" for name in BUS_FILES}

    [patch] = [
        a for a in plan(observed(second, made_secret(FIRST)), CONFIG, NOW).actions
        if isinstance(a, Patch) and a.kind == "Secret"
    ]  # fmt: skip

    assert certificate_in(dict(patch.patch["data"])) == second


def test_the_same_certificate_is_not_written_again() -> None:
    actions = plan(observed(FIRST, made_secret(FIRST)), CONFIG, NOW).actions

    assert not [a for a in actions if isinstance(a, Create | Patch) and a.kind == "Secret"]


def pod_of(config: RuntimeConfig) -> Any:
    seen = observed(FIRST)
    return render.stateful_set(seen.identity, read_spec(seen.obj), config)["spec"]["template"]["spec"]


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


def test_agents_have_nothing_to_reach_kubernetes_with() -> None:
    pod = pod_of(CONFIG)

    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert "serviceAccountName" not in pod
    assert not [v for v in pod["volumes"] if "projected" in v]


def test_it_is_not_told_by_an_observation() -> None:
    assert "tls.key one" not in repr(observed(FIRST))


def test_it_is_read_anew_every_time(tmp_path: Path) -> None:
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
