"""A port of a Service in the cluster, forwarded to the loopback address."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddlewheel.cli.tools import Tools, tool
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end

_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_RESTART_AFTER = 1.0


@asynccontextmanager
async def port_forward(tools: Tools, namespace: str, target: str, port: int) -> AsyncIterator[int]:
    """Yield the local port that leads to `target` (`svc/nats`) until the block ends.

    When the pod behind it exits, the same local port is forwarded again as soon as another one is ready.

    Raises:
        Retry: kubectl could not forward at first (no ready pod behind the target, for example).
    """
    forward = _Forward(tools, namespace, target, port)
    local = await forward.start(0)
    keeper = asyncio.create_task(forward.keep(local))
    try:
        yield local
    finally:
        await end(keeper)
        await forward.stop()


class _Forward:
    """One `kubectl port-forward` process, restarted when it exits."""

    def __init__(self, tools: Tools, namespace: str, target: str, port: int) -> None:
        self._tools = tools
        self._namespace = namespace
        self._target = target
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, local: int) -> int:
        self._process = process = await asyncio.create_subprocess_exec(
            tool("kubectl"), "-n", self._namespace, "port-forward", "--address", "127.0.0.1",
            self._target, f"{local or ''}:{self._port}",
            env=self._tools.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        return await self._forwarded_port(process)

    async def keep(self, local: int) -> None:
        while True:
            await self._drained()
            await asyncio.sleep(_RESTART_AFTER)
            try:
                await self.start(local)
            except Retry:
                await self.stop()

    async def stop(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _drained(self) -> None:
        assert self._process
        assert self._process.stdout
        while await self._process.stdout.readline():
            pass
        await self._process.wait()

    async def _forwarded_port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout
        try:
            async with asyncio.timeout(20):
                line = await process.stdout.readline()
        except TimeoutError:
            await self.stop()
            raise Retry(
                "PortForwardSlow", f"kubectl port-forward {self._target} printed nothing within 20 s"
            ) from None
        if found := _FORWARDING.search(line):
            return int(found.group(1))
        await self.stop()
        raise Retry(
            "PortForwardFailed", f"kubectl port-forward {self._target}: {line.decode(errors='replace')}"
        )
