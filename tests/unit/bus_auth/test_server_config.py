"""The files of the NATS server, and when the server reloads them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bus_auth.server_config import CONFIG, KEYS, PID, ServerConfig, Sources
from paddlewheel.testkit.charts import named, render


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """The files that the kubelet mounts."""
    made = Sources(tmp_path / "nats.conf", tmp_path / "tls.crt", tmp_path / "tls")
    made.config.write_text("port: 4222")
    made.tls.mkdir()
    (made.tls / "tls.crt").write_text("one")
    return made


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that were sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr("bus_auth.server_config.variables", lambda file: file.read_text())
    monkeypatch.setattr(
        "bus_auth.server_config._name_of", lambda pid: "python" if pid == 7 else "nats-server"
    )
    return sent


@pytest.fixture
def config(sources: Sources, tmp_path: Path) -> ServerConfig:
    sources.certificate.write_text("A: 1")
    (tmp_path / "run").mkdir()
    return ServerConfig(sources, tmp_path / "run")


def test_the_first_configuration_is_written_and_nobody_is_told(
    config: ServerConfig, tmp_path: Path, told: list[tuple[int, int]]
) -> None:
    assert config.update()
    assert (tmp_path / "run" / CONFIG).read_text() == "port: 4222"
    assert (tmp_path / "run" / KEYS).read_text() == "A: 1"
    assert not config.update()
    assert told == []


@pytest.mark.parametrize(
    ("file", "text"), [("nats.conf", "port: 4333"), ("tls.crt", "A: 2"), ("tls/tls.crt", "two")]
)
def test_a_change_is_reloaded_once(
    config: ServerConfig, tmp_path: Path, told: list[tuple[int, int]], file: str, text: str
) -> None:
    config.update()
    (tmp_path / "run" / PID).write_text("42")
    (tmp_path / file).write_text(text)

    assert config.update()
    assert not config.update()
    assert told == [(42, signal.SIGHUP)]


def test_another_process_with_the_number_of_a_server_that_has_ended_is_left_alone(
    config: ServerConfig, tmp_path: Path, told: list[tuple[int, int]]
) -> None:
    (tmp_path / "run" / PID).write_text("7")

    config.update()
    assert told == []


def test_a_server_that_does_not_run_yet_is_not_waited_for(config: ServerConfig, sources: Sources) -> None:
    config.update()
    sources.config.write_text("port: 4333")

    assert config.update()


def test_a_source_that_is_missing_changes_nothing(
    config: ServerConfig, sources: Sources, tmp_path: Path
) -> None:
    config.update()
    sources.config.unlink()

    with pytest.raises(OSError, match=r"nats\.conf"):
        config.update()
    assert (tmp_path / "run" / CONFIG).read_text() == "port: 4222"


def test_the_chart_mounts_what_it_reads() -> None:
    pod = named(render("paddlewheel", "crds.install=false"), "StatefulSet", "nats")["spec"]["template"][
        "spec"
    ]
    [beside] = pod["initContainers"]
    [server] = pod["containers"]

    assert pod["shareProcessNamespace"] is True
    assert beside["restartPolicy"] == "Always"
    assert server["args"] == ["--config", f"{beside['args'][-1]}/{CONFIG}"]
    assert {"name": "run", "mountPath": beside["args"][-1]} in server["volumeMounts"]
