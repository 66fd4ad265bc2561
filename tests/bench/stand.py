"""What is measured on: a real control plane, a real NATS server, and controllers as real processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from paddlewheel.cli.repo import repo_file
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.testkit.kubernetes import install
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

JOB_CONTROLLER = "job-controller"
AS_SHIPPED: Mapping[str, Mapping[str, str]] = {
    JOB_CONTROLLER: {
        "GATE_IMAGE": "example/pause:1",
        "GATE_URL": "http://job-controller.paddle-system.svc:8080",
        "PODS_PORT": "0",
    },
    "trigger-controller": {"WEBHOOK_PORT": "0"},
}
"""Settings of a service beside its addresses: those of the chart, where nothing runs the image, and any free
port for what is not asked here, so that replicas share the host."""


INSTALLER, INSTALLER_MODULE = "bus-installer", "paddlewheel.bus.installer"


@dataclass
class Stand:
    """`cluster` is a client of its own; every service has another.

    Args:
        folder: for the logs of the services and whatever else the run writes.
        services: those started, by the name of the replica.
    """

    cluster: ApiCluster
    kubeconfig: str
    nats: NatsServer
    folder: Path
    services: dict[str, Service] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    async def start(self, service: str, replica: str = "", **settings: str) -> Service:
        """Start a service of the tree and wait until it is ready.

        Args:
            service: kebab-case, as its folder.
            replica: its name where several share the work; "" = the service's.
            settings: beside the usual ones and those of the chart, without the service's prefix.
        """
        name, module = replica or service, service.replace("-", "_")
        self._ports[name] = int(settings["HTTP_PORT"]) if "HTTP_PORT" in settings else free_ports(1)[0]
        usual = {
            "KUBECONFIG": self.kubeconfig,
            "NATS_URL": self.nats.url,
            "HTTP_PORT": str(self._ports[name]),
            "LOG_LEVEL": "warning",
            "POD_NAME": name,
        }
        given = {**usual, **AS_SHIPPED.get(service, {}), **settings}
        env = {f"{module.upper()}_{key}": value for key, value in given.items()}
        program = INSTALLER_MODULE if service == INSTALLER else module
        made = Service(program, {**os.environ, **env}, self.folder / f"{name}.log")
        self.services[name] = made
        await made.start()
        await eventually(lambda: self.ready(name), within=60, what=f"{name} ready")
        return made

    async def ready(self, replica: str) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self._at(replica, "readyz")) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def writes(self, replica: str = JOB_CONTROLLER) -> int:
        """Successful API writes of a service's process since it started, beside those to its own lease."""
        return sum(_writes_in(line) for line in await self._metrics(replica))

    async def passes(self, replica: str) -> int:
        """Reconciles of a service's process that have ended since it started."""
        lines = await self._metrics(replica)
        return sum(_value(line) for line in lines if line.startswith("paddlewheel_reconciles_total{"))

    def memory(self, replica: str) -> float:
        """Resident memory of a service's process, in MB."""
        lines = Path(f"/proc/{self.services[replica].pid}/status").read_text().splitlines()
        (kib,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
        return int(kib) * 1024 / 1e6

    async def cpu(self, replica: str) -> float:
        """CPU seconds of a service's process since it started."""
        lines = await self._metrics(replica)
        return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total "))

    async def _metrics(self, replica: str) -> list[str]:
        address = self._at(replica, "metrics")
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return (await answer.text()).splitlines()

    async def end(self) -> None:
        """End every service started, however it fares."""
        for service in self.services.values():
            await service.kill()

    def _at(self, replica: str, path: str) -> str:
        return f"http://127.0.0.1:{self._ports[replica]}/{path}"


def _writes_in(line: str) -> int:
    is_write = line.startswith("paddlewheel_kube_requests_total{") and any(
        f'verb="{verb}"' in line for verb in ("create", "patch", "patch-status", "delete")
    )
    # A lease is renewed while time passes, whatever else there is to do.
    counted = is_write and 'resource="leases"' not in line
    return _value(line) if counted else 0


def _value(line: str) -> int:
    return int(float(line.rsplit(" ", 1)[1]))


@asynccontextmanager
async def stand(fake_nodes: int, name: str = "bench", logs: Path | None = None) -> AsyncIterator[Stand]:
    """Yield a fresh stand without services; everything it started ends with the block.

    Args:
        fake_nodes: played by kwok, 0 = pods stay pending unless the run plays the kubelet.
        name: of the cluster, beside the process id.
        logs: a folder that keeps what the services wrote; None keeps nothing.
    """
    spec = ClusterSpec(name=f"{name}-{os.getpid()}", control_plane_only=True, fake_nodes=fake_nodes)
    with running_cluster(spec) as embedded, tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        await install(str(embedded.kubeconfig), repo_file("deploy/charts/paddlewheel/files/crds"))
        store = Path(folder, "nats")
        store.mkdir()
        server = NatsServer(store)
        server.start()
        try:
            async with await connect(str(embedded.kubeconfig)) as cluster:
                made = Stand(cluster, str(embedded.kubeconfig), server, Path(folder))
                try:
                    await made.start(INSTALLER, EVERY="1")
                    yield made
                finally:
                    await made.end()
                    _keep_logs(Path(folder), logs)
        finally:
            server.kill()


def _keep_logs(folder: Path, logs: Path | None) -> None:
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        for log in folder.glob("*.log"):
            shutil.copy(log, logs)
