"""Forwards a port of a Service in the cluster to the loopback address."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddlewheel.cli import tools
from paddlewheel.cli.tools import Tools
from paddlewheel.core import tasks
from paddlewheel.core.errors import Retry

FAILURES = _SLOW, _FAILED = "PortForwardSlow", "PortForwardFailed"
"""Reasons of the Retry when the port cannot be forwarded."""
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_RESTART_INTERVAL_SECONDS = 1.0
_FORWARD_TIMEOUT_SECONDS = 20


@asynccontextmanager
async def port_forward(where: Tools, namespace: str, target: str, port: int) -> AsyncIterator[int]:
    """Yield the local port that leads to `target` (`svc/nats`) until the block ends.

    When the pod behind it exits, the same local port is forwarded again as soon as another pod is ready.

    Raises:
        Retry: kubectl could not forward at first (no ready pod behind the target, for example).
    """
    forward = _Forward(where, namespace, target, port)
    try:
        local = await forward.start(0)
        keeper = asyncio.create_task(forward.keep(local))
        try:
            yield local
        finally:
            await tasks.end(keeper)
    finally:
        await forward.stop()


class _Forward:
    """One `kubectl port-forward` process, restarted when it exits."""

    def __init__(self, where: Tools, namespace: str, target: str, port: int) -> None:
        self._where = where
        self._namespace = namespace
        self._target = target
        self._port = port
        self._process: Process | None = None

    async def start(self, local: int) -> int:
        self._process = process = await self._where.start(
            "kubectl", "-n", self._namespace, "port-forward", "--address", "127.0.0.1",
            self._target, f"{local or ''}:{self._port}", stderr=STDOUT,
        )  # fmt: skip
        return await self._forwarded_port(process)

    async def keep(self, local: int) -> None:
        while True:
            await self._drained()
            await asyncio.sleep(_RESTART_INTERVAL_SECONDS)
            try:
                await self.start(local)
            except Retry:
                await self.stop()

    async def stop(self) -> None:
        if self._process:
            await tools.end(self._process)

    async def _drained(self) -> None:
        assert self._process
        assert self._process.stdout
        while await self._process.stdout.readline():
            pass
        await self._process.wait()

    async def _forwarded_port(self, process: Process) -> int:
        assert process.stdout
        output = b""
        try:
            async with asyncio.timeout(_FORWARD_TIMEOUT_SECONDS):
                while line := await process.stdout.readline():
                    if found := _FORWARDING.search(line):
                        return int(found.group(1))
                    output += line
        except TimeoutError:
            raise Retry(
                _SLOW,
                f"kubectl port-forward {self._target} printed nothing within {_FORWARD_TIMEOUT_SECONDS} s",
            ) from None
        raise Retry(_FAILED, f"kubectl port-forward {self._target}: {tools.output_of(output)}")
