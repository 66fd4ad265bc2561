"""The server's side of the process that runs the model."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

import structlog

from paddle_runtime import frames
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.cpus import cpu_limit
from paddle_runtime.domain.files import ModelFault, ModelFiles
from paddle_runtime.domain.model import Tensors
from paddle_runtime.orders import Answer, Done, Fault, Load, Order, Prepare, Run, WarmedUp, WarmUp
from paddle_runtime.ports import EngineDied, InferenceFailed
from paddle_runtime.timing import ENGINE_STOP_TIMEOUT_SECONDS, JOINING_TRIALS_TIMEOUT_SECONDS

_OWN_SETTINGS = "PADDLE_RUNTIME_"
log = structlog.get_logger(__name__)


class PaddleProcess:
    """Paddle in a process of its own, which ends with this one."""

    def __init__(self, settings: PaddleRuntimeSettings) -> None:
        self._settings = settings
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._link: Link | None = None
        self._killed_for = ""
        self._order: Load | None = None

    async def prepare(self) -> str:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "paddle_runtime.worker", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=asyncio.subprocess.DEVNULL,
            )
        _, self._link = await asyncio.get_running_loop().create_connection(Link, sock=ours)
        chosen = self._settings
        order = Prepare(chosen.device, chosen.threads_of_a_run(cpu_limit()), chosen.gpu_memory_mib)
        return cast(str, await self._ask(order))

    async def load(self, directory: Path, files: ModelFiles) -> None:
        parameters = str(directory / files.parameters) if files.parameters else ""
        self._order = Load(str(directory / files.program), parameters)
        await self._ask(self._order)

    async def warm_up(self) -> WarmedUp:
        warmed = await self._warmed_up(tries_joining=False)
        if not self._settings.batching:
            return warmed
        try:
            async with asyncio.timeout(JOINING_TRIALS_TIMEOUT_SECONDS):
                return await self._warmed_up(tries_joining=True)
        except TimeoutError:
            why = f"the trials took longer than {JOINING_TRIALS_TIMEOUT_SECONDS:g} s"
        except EngineDied as error:
            why = str(error)
        # The inputs of the trials may be ones that no client sends.
        log.warning("requests to this model are not joined", why=why)
        return await self._begin_again()

    async def _warmed_up(self, *, tries_joining: bool) -> WarmedUp:
        return cast(WarmedUp, await self._ask(WarmUp(self._settings.warmup_shapes, tries_joining)))

    async def _begin_again(self) -> WarmedUp:
        """Load the model into a new process."""
        assert self._order is not None, "load comes first"
        self._kill("")
        await self.wait_died()
        await self.prepare()
        await self._ask(self._order)
        return await self._warmed_up(tries_joining=False)

    async def run(self, inputs: Tensors) -> Tensors:
        limit = self._settings.run_timeout
        try:
            async with asyncio.timeout(limit):
                return cast(Tensors, await self._ask(Run(inputs)))
        except TimeoutError:
            self._kill(f"a run took longer than {limit:g} s, PADDLE_RUNTIME_RUN_TIMEOUT")
            raise EngineDied(await self.wait_died()) from None

    async def wait_died(self) -> str:
        assert self._process is not None, "prepare comes first"
        code = await self._process.wait()
        return self._killed_for or f"the process that runs the model ended with exit code {code}{_hint(code)}"

    async def stop(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._process is None or self._process.returncode is not None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), ENGINE_STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _ask(self, order: Order) -> object:
        assert self._link is not None, "prepare comes first"
        async with self._turn:
            try:
                answer = await self._link.ask(order)
            except ConnectionError as error:
                raise EngineDied(await self.wait_died()) from error
            except BaseException:
                # What is still to come would be taken for the answer to the next order.
                self._link.close()
                raise
        if isinstance(answer, Done):
            return answer.value
        if isinstance(answer, Fault):
            raise ModelFault(answer.reason, answer.message)
        raise InferenceFailed(answer.message)

    def _kill(self, reason: str) -> None:
        """A process that is busy forever does not notice that its socket was closed."""
        assert self._process is not None, "prepare comes first"
        self._killed_for = reason
        with suppress(ProcessLookupError):
            self._process.kill()


class Link(asyncio.BufferedProtocol):
    """The connection to the process, for one order at a time."""

    def __init__(self) -> None:
        self._assembler = frames.Assembler()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._lost: Exception | None = None

    async def ask(self, order: Order) -> Answer:
        """Raises ConnectionError, or that of a frame that is not one."""
        if self._lost is not None:
            raise self._lost
        assert self._transport is not None, "it is connected"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(frames.encode(order))
        return await self._answer

    def close(self) -> None:
        """The process ends when it notices."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answer = self._assembler.take(nbytes)
        except Exception as error:
            # A model can be a program that writes what it likes.
            self._end(error)
            self.close()
        else:
            if answer is not None:
                self._answered(answer)

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc if isinstance(exc, ConnectionError) else ConnectionResetError("the process is gone"))

    def _answered(self, answer: Answer) -> None:
        if self._answer is None or self._answer.done():
            self.close()
        else:
            self._answer.set_result(answer)

    def _end(self, error: Exception) -> None:
        self._lost = self._lost or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _hint(code: int) -> str:
    return ": most likely it reached the memory limit" if code == -signal.SIGKILL else ""


def _environment() -> dict[str, str]:
    """Without our settings, for they contain keys; and with Paddle's log limited to errors."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)}
    return {"GLOG_minloglevel": "2", **inherited}
