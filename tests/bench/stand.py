"""What the bench measures on: a real control plane with kwok nodes, real NATS, a real controller process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from paddlewheel.cli.repo import repo_file
from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.testkit.kubernetes import install
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


@dataclass(frozen=True)
class Stand:
    """`cluster` is a client of its own; the controller has another, whose writes `writes()` reads."""

    cluster: ApiCluster
    controller_port: int

    async def writes(self) -> int:
        """Successful API writes of the controller process since it started."""
        async with aiohttp.ClientSession() as session, session.get(self._address("metrics")) as answer:
            return sum(_writes_in(line) for line in (await answer.text()).splitlines())

    async def ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self._address("readyz")) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def _address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.controller_port}/{path}"


def _writes_in(line: str) -> int:
    counted = line.startswith("paddlewheel_kube_requests_total{") and any(
        f'verb="{verb}"' in line for verb in ("create", "patch", "patch-status", "delete")
    )
    return int(float(line.rsplit(" ", 1)[1])) if counted else 0


@asynccontextmanager
async def stand(fake_nodes: int) -> AsyncIterator[Stand]:
    """Yield a fresh stand; everything it started ends with the block."""
    spec = ClusterSpec(name=f"bench-{os.getpid()}", control_plane_only=True, fake_nodes=fake_nodes)
    with running_cluster(spec) as embedded, tempfile.TemporaryDirectory() as store:
        await install(str(embedded.kubeconfig), repo_file("deploy/crds"))
        server = NatsServer(Path(store))
        server.start()
        port = _free_port()
        process = await _start_controller(str(embedded.kubeconfig), server.url, port)
        try:
            async with await connect(str(embedded.kubeconfig)) as cluster:
                made = Stand(cluster, port)
                await eventually(made.ready, within=60, what="job-controller ready")
                yield made
        finally:
            process.terminate()
            await process.wait()
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _start_controller(kubeconfig: str, nats_url: str, port: int) -> asyncio.subprocess.Process:
    env = {
        **os.environ,
        "KUBECONFIG": kubeconfig,
        "JOB_CONTROLLER_NATS_URL": nats_url,
        "JOB_CONTROLLER_HTTP_PORT": str(port),
        "JOB_CONTROLLER_LOG_LEVEL": "warning",
    }
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "job_controller", env=env)
