"""The files of the NATS server, and when the server reloads them."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bus_auth.__main__ import keep_files
from bus_auth.server_config import CONFIG, KEYS, PID, ServerConfig, Sources, keep_store
from paddlewheel.testkit.charts import named, render

SERVER, OTHER = 42, 7
"""Numbers of processes."""


@dataclass
class Server:
    """A server that loads its files when it starts, and when it is signalled unless it refuses."""

    folder: Path
    refuses: bool = False
    runs: bool = False
    signals: list[tuple[int, int]] = field(default_factory=list)
    loaded: str = ""

    def start(self) -> None:
        self.runs = True
        (self.folder / PID).write_text(str(SERVER))
        self.loaded = (self.folder / CONFIG).read_text()

    def signal(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))
        if not self.refuses:
            self.loaded = (self.folder / CONFIG).read_text()

    async def report(self) -> dict[str, Any] | None:
        if not self.runs:
            return None
        [*_, tags] = self.loaded.rsplit("server_tags: ", 1)
        return {"tags": [tags.strip('[]"\n')], "jetstream": {"config": {"max_storage": 2 << 30}}}


class NoTime:
    """A clock whose sleeps end at once."""

    async def sleep(self, _: float) -> None:
        return None


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """The files that the kubelet mounts."""
    made = Sources(tmp_path / "nats.conf", tmp_path / "tls.crt", tmp_path / "tls")
    made.config.write_text("port: 4222")
    made.certificate.write_text("A: 1")
    made.tls.mkdir()
    (made.tls / "tls.crt").write_text("one")
    return made


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    (tmp_path / "run").mkdir()
    made = Server(tmp_path / "run")
    monkeypatch.setattr(os, "kill", made.signal)
    monkeypatch.setattr("bus_auth.server_config.variables", lambda file: file.read_text())
    names = {SERVER: "nats-server", OTHER: "python"}
    monkeypatch.setattr("bus_auth.server_config._name_of", lambda pid: names[pid])
    return made


@pytest.fixture
def config(sources: Sources, server: Server) -> ServerConfig:
    return ServerConfig(sources, server.folder, server.report, NoTime())  # type: ignore[arg-type]


async def test_a_server_that_starts_later_reads_the_files_and_reloads_them_once(
    config: ServerConfig, server: Server
) -> None:
    assert await config.update()
    assert (server.folder / CONFIG).read_text().startswith("port: 4222\n")
    assert (server.folder / KEYS).read_text() == "A: 1"
    server.start()
    assert await config.update()
    assert await config.update()
    assert server.signals == [(SERVER, signal.SIGHUP)], "the reloader may have crashed between two reloads"


@pytest.mark.parametrize(
    ("file", "text"), [("nats.conf", "port: 4333"), ("tls.crt", "A: 2"), ("tls/tls.crt", "two")]
)
async def test_a_change_is_reloaded_twice_and_never_again(
    config: ServerConfig, server: Server, tmp_path: Path, file: str, text: str
) -> None:
    await config.update()
    server.start()
    (tmp_path / file).write_text(text)

    assert await config.update()
    assert await config.update()
    assert server.signals == [(SERVER, signal.SIGHUP)] * 2


async def test_a_refused_reload_is_tried_again_until_the_server_has_loaded_it(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    server.start()
    sources.config.write_text("port: 4333")
    server.refuses = True

    assert not await config.update()
    assert not await config.update()
    assert not config.is_loaded
    server.refuses = False
    assert await config.update()
    assert config.is_loaded
    assert len(server.signals) == 2 + 2


async def test_a_server_that_started_with_the_files_before_is_told_of_the_new_ones(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    """It read them before the change, and answered after it."""
    await config.update()
    server.start()
    server.runs = False
    sources.config.write_text("port: 4333")
    assert not await config.update(), "it runs, and has not said what it has loaded"
    server.runs = True

    assert await config.update()
    assert server.signals == [(SERVER, signal.SIGHUP)] * 2


async def test_a_reloader_that_starts_again_reloads_the_server_once(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    server.start()

    again = ServerConfig(sources, server.folder, server.report, NoTime())  # type: ignore[arg-type]
    assert await again.update()
    assert await again.update()
    assert server.signals == [(SERVER, signal.SIGHUP)]


async def test_a_refused_configuration_does_not_stay_when_the_operator_takes_it_back(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    """The server would start with it after its next crash."""
    await config.update()
    server.start()
    assert await config.update()
    server.refuses = True
    sources.config.write_text("port: wrong")
    assert not await config.update()
    sources.config.write_text("port: 4222")
    assert await config.update()
    assert (server.folder / CONFIG).read_text().startswith("port: 4222\n")


async def test_a_server_that_runs_without_an_answer_of_its_monitor_has_not_loaded_a_change(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    server.start()
    server.runs = False
    sources.config.write_text("port: 4333")
    assert not await config.update()
    assert server.signals == [], "a server that starts would end"
    server.runs = True
    assert await config.update()
    assert server.loaded.startswith("port: 4333\n")


async def test_a_reloader_that_starts_again_does_not_end_for_sources_that_it_cannot_read(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    """The kubelet would end the server, whose probes it answers."""
    await config.update()
    server.start()
    sources.certificate.unlink()
    stop, again = asyncio.Event(), ServerConfig(sources, server.folder, server.report, NoTime())  # type: ignore[arg-type]
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        group.create_task(keep_files(again, stop))
        await asyncio.sleep(0)
        stop.set()


async def test_another_process_with_the_number_of_a_server_that_has_ended_is_left_alone(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    server.start()
    (server.folder / PID).write_text(str(OTHER))
    sources.config.write_text("port: 4333")

    assert not await config.update()
    assert server.signals == []


async def test_a_source_that_is_missing_changes_nothing(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    sources.config.unlink()

    with pytest.raises(OSError, match=r"nats\.conf"):
        await config.update()
    assert (server.folder / CONFIG).read_text().startswith("port: 4222\n")


async def test_a_running_server_keeps_its_larger_store_and_loads_all_else(
    config: ServerConfig, sources: Sources, server: Server
) -> None:
    await config.update()
    server.start()
    sources.config.write_text('port: 4333\n  max_file_store: "1G"')

    assert await config.update()
    assert "port: 4333" in server.loaded
    assert f"max_file_store: {2 << 30}\n" in server.loaded


@pytest.mark.parametrize(
    ("memory", "file", "wanted"),
    [
        (0, 0, (256 << 20, 4 << 30)),
        (1 << 30, 4 << 30, (1 << 30, 4 << 30)),
        (1, 5 << 30, (256 << 20, 5 << 30)),
    ],
)
def test_each_store_of_the_chart_is_kept(memory: int, file: int, wanted: tuple[int, int]) -> None:
    values = ("crds.install=false", "nats.jetstream.maxFileStore=4Gi", "nats.jetstream.maxMemoryStore=256Mi")
    text = named(render("paddlewheel", *values), "ConfigMap", "nats-config")["data"]["nats.conf"]
    running = {"max_memory": memory, "max_storage": file}

    kept = keep_store(text, {"jetstream": {"config": running}})

    assert f"  max_memory_store: {wanted[0]}\n  max_file_store: {wanted[1]}\n" in kept


def test_another_sync_interval_replaces_the_pods_and_is_in_no_file_that_the_server_would_refuse() -> None:
    before, after = (
        render("paddlewheel", "crds.install=false", f"nats.jetstream.syncInterval={interval}")
        for interval in ("1m", "always")
    )

    assert named(before, "ConfigMap", "nats-config") == named(after, "ConfigMap", "nats-config")
    assert named(before, "StatefulSet", "nats")["spec"] != named(after, "StatefulSet", "nats")["spec"]


def test_a_first_cluster_replaces_the_pods_wherever_they_are_placed() -> None:
    """A server refuses to reload a file that makes it a member of a cluster."""
    term = "nodeSelectorTerms[0].matchFields[0]"
    affinity = (
        f"workloads.nats.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.{term}.key=a"
    )
    before, after = (
        named(
            render("paddlewheel", "crds.install=false", affinity, f"nats.replicas={n}"), "StatefulSet", "nats"
        )
        for n in (1, 3)
    )

    assert before["spec"]["template"] != after["spec"]["template"]


@pytest.mark.parametrize(
    "value",
    ["nats.jetstream.maxFileStore=3Gi", "nats.roleLimits.services=100", "nats.subscribers[0].name=vision"],
)
def test_what_the_server_reloads_leaves_the_pods_alone(value: str) -> None:
    before, after = (
        render("paddlewheel", "crds.install=false", "nats.jetstream.maxFileStore=4Gi", *values)
        for values in ((), (value,))
    )

    assert named(before, "ConfigMap", "nats-config") != named(after, "ConfigMap", "nats-config")
    assert named(before, "StatefulSet", "nats") == named(after, "StatefulSet", "nats")


def test_the_chart_mounts_what_it_reads() -> None:
    pod = named(render("paddlewheel", "crds.install=false"), "StatefulSet", "nats")["spec"]["template"][
        "spec"
    ]
    [beside] = pod["initContainers"]
    [server] = pod["containers"]

    assert pod["shareProcessNamespace"] is True
    assert beside["restartPolicy"] == "Always"
    folder = beside["args"][4]
    assert server["args"] == ["--config", f"{folder}/{CONFIG}"]
    assert {"name": "run", "mountPath": folder} in server["volumeMounts"]
