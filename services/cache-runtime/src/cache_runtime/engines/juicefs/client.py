"""Running the JuiceFS client: argument lists, secrets by environment, bounded output, no shell."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from cache_runtime.cell import Cell
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.output import last_problem, logged_problem
from cache_runtime.timing import CLIENT_KILL_TIMEOUT_SECONDS
from paddlewheel.core.errors import Retry

KEPT_OUTPUT, KEPT_LOG = 16 << 20, 256 << 10
"""Bytes kept of the end of stdout, where `status` lists all sessions, and of stderr."""
_GLOBAL = ("--no-agent", "--no-color")
Hear = Callable[[bytes], None]


_VARIABLES = """
    PATH HOME TMPDIR TZ LANG SSL_CERT_FILE SSL_CERT_DIR
    HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy
"""
_INHERITED = frozenset(_VARIABLES.split())
"""All that the client is given of this process' environment, which names the bus and its keys."""


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _INHERITED}


@dataclass(frozen=True)
class Completed:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    log: bytes = b""
    """`stderr` as it was written, which is the end of all."""

    @property
    def problem(self) -> str:
        """The last error, without secrets."""
        return last_problem(self.stderr)

    def problem_under(self, log_id: str) -> str:
        """The same, of what was logged under this id if there is any: no name can look like that."""
        return logged_problem(self.log, log_id) or self.problem


class JuiceFsClient:
    """The JuiceFS program.

    Args:
        cell: where commands run that are confined.
    """

    def __init__(self, program: str, cell: Cell) -> None:
        self._program, self._cell = program, cell

    @asynccontextmanager
    async def process(
        self, command: Command, *, stdout: int = PIPE, stderr: int = PIPE
    ) -> AsyncIterator[Process]:
        """A running command; killed when the context ends first.

        Raises:
            Retry: the program cannot be started.
        """
        process = await self.spawn(command, stdout=stdout, stderr=stderr)
        try:
            yield process
        finally:
            await kill(process)

    async def spawn(
        self, command: Command, *, stdout: int | None = PIPE, stderr: int | None = PIPE
    ) -> Process:
        """Start a command in a session of its own, so that Ctrl-C in a terminal does not reach it."""
        line, env = (self._program, *_GLOBAL, *command.args), {**_inherited(), **command.env}
        try:
            if command.is_confined:
                await asyncio.to_thread(self._cell.prepare)
                line, env = self._cell.command(line[0], line[1:]), {**env, **self._cell.environment}
            return await asyncio.create_subprocess_exec(
                *line,
                env=env,
                stdout=stdout,
                stderr=stderr,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise Retry("JuiceFsMissing", f"{self._program}: {error.strerror}") from error

    async def run(
        self, command: Command, *, timeout: float | None = None, hear: Hear | None = None
    ) -> Completed:
        """Run to the end.

        Args:
            timeout: seconds; then the command is killed. None leaves that to the caller, who cancels.
            hear: given all of stderr, piece by piece; of what is long, only the end is kept.

        Raises:
            Retry: not started, or not done in time.
        """
        async with self.process(command) as process:
            try:
                async with asyncio.timeout(timeout):
                    return await _collect(process, hear)
            except TimeoutError as error:
                what = next(arg for arg in command.args if not arg.startswith("-"))
                raise Retry("JuiceFsTimeout", f"juicefs {what} took more than {timeout:.0f} s") from error


async def _collect(process: Process, hear: Hear | None) -> Completed:
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = await asyncio.gather(
        _tail(process.stdout, KEPT_OUTPUT), _tail(process.stderr, KEPT_LOG, hear)
    )
    code = await process.wait()
    return Completed(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"), stderr)


async def _tail(stream: asyncio.StreamReader, size: int, hear: Hear | None = None) -> bytes:
    kept = bytearray()
    while data := await stream.read(1 << 16):
        if hear:
            hear(data)
        kept += data
        del kept[:-size]
    return bytes(kept)


async def kill(process: Process) -> None:
    """Kill a process and wait for it, `CLIENT_KILL_TIMEOUT_SECONDS` at most."""
    if process.returncode is not None:
        return
    process.kill()
    await has_ended(process, CLIENT_KILL_TIMEOUT_SECONDS)


async def kill_session(process: Process) -> bool:
    """Kill a process and its children; true when it has ended within `CLIENT_KILL_TIMEOUT_SECONDS`."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await has_ended(process, CLIENT_KILL_TIMEOUT_SECONDS)


async def has_ended(process: Process, within: float) -> bool:
    """Wait for the end of a process, so many seconds at most."""
    try:
        async with asyncio.timeout(within):
            await process.wait()
    except TimeoutError:
        return False
    return True
