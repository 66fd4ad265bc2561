"""A service of ours as a process of its own: started, killed and started again."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

END_WITHIN = 90.0
"""Seconds a signalled process gets to end."""


class Service:
    """`python -m <module> <arguments>` with an environment and a log of its own."""

    def __init__(self, module: str, env: dict[str, str], log: Path, *arguments: str) -> None:
        self._command = ("-m", module, *arguments)
        self._env = env
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return at once; the service comes up in its own time."""
        with self.log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command, env=self._env, stdout=out, stderr=out
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended by itself; None while it runs, and once it was killed or stopped."""
        return self._process.returncode if self._process else None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int | None:
        """SIGTERM; gives the exit code, None when it did not run."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            process.send_signal(how)
        return await asyncio.wait_for(process.wait(), END_WITHIN)
