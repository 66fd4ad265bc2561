"""What the installer does about work on request: agents may remove none, for a purge names it in its body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.js.errors import APIError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.bus.admin.permissions import WORK_PURGES
from paddlewheel.bus.nats.connection import TIMEOUT, Connection
from paddlewheel.bus.streams import WORK
from paddlewheel.bus.turns import Limits, Turns
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

_PAUSE = 0.5
TURNS = Limits()
"""Of each data set, so that none waits for another's."""
_SET = 3
"""Which token of a subject of work is the data set's uid."""

log = LibraryLogger(__name__)

Act = Callable[[str, bytes], Awaitable[None]]
"""What is done about a request, of its subject and body."""


class WorkPurge(BaseModel):
    """Work to remove: that of one data set, or of one of its runs or partitions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str = Field(
        pattern=r"^pw\.work\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(\.([A-Za-z0-9_-]+|\*))+$", max_length=200
    )

    @property
    def request(self) -> str:
        """The subject on which it is asked for."""
        return WORK_PURGES.replace("*", _set_of(self.subject))


async def ask_to_purge(connection: Connection, subject: str) -> None:
    """Have the installer remove the work. Raises Retry, Permanent when it is refused."""
    wanted, what = WorkPurge(subject=subject), f"purge of {subject}"
    try:
        answer = json.loads(await connection.request(wanted.request, wanted.model_dump_json().encode()))
    except Retry as error:
        if "no responders" in error.message:
            raise Retry("WorkNotRemoved", f"{what}: bus-installer does not run") from error
        raise
    if answer.get("refused"):
        raise Permanent("WorkRefused", f"{what}: {answer['refused']}")
    if answer.get("error"):
        raise Retry("WorkNotRemoved", f"{what}: {answer['error']}")


async def purge(connection: Connection, subject: str) -> None:
    """Remove work, as the role that may. Raises Retry."""
    await _call(connection, f"$JS.API.STREAM.PURGE.{WORK.name}", {"filter": subject})


class WorkRequests:
    """Removes what is asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turns = Turns(TURNS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        try:
            await self._listen({WORK_PURGES: self._purge})
        finally:
            await end(*self._tasks)

    async def _listen(self, answers: Mapping[str, Act]) -> None:
        while True:
            lost = asyncio.Event()
            stop_listening = self._connection.on_lost(lost.set)
            try:
                client = await self._connection.client()
                for subject, answer in answers.items():
                    async with self._connection.calling(f"subscribe to {subject}"):
                        await client.subscribe(subject, queue="installers", cb=self._answering(answer))
                await lost.wait()
            except Retry as error:
                log.info("no work is removed for now", why=str(error))
            finally:
                stop_listening()
            await asyncio.sleep(_PAUSE)

    def _answering(self, act: Act) -> Callable[[Msg], Awaitable[None]]:
        # nats-py hands over the next message when this has returned.
        async def take(msg: Msg) -> None:
            task = asyncio.create_task(self._answer(act, msg, asyncio.get_running_loop().time() + TIMEOUT))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return take

    async def _answer(self, act: Act, msg: Msg, until: float) -> None:
        """Nothing after `until`, when nobody waits for it any more: whoever asked asks again."""
        try:
            async with asyncio.timeout_at(until):
                result = await _result(self._in_turn(act, msg))
                with suppress(nats.errors.Error, OSError):
                    await msg.respond(json.dumps(result).encode())
        except TimeoutError:
            log.info("a request about work took too long", subject=msg.subject)

    async def _in_turn(self, act: Act, msg: Msg) -> None:
        # The data set's uid, in whose name it is asked.
        async with self._turns.taken(msg.subject.rpartition(".")[2]):
            await act(msg.subject, msg.data)

    async def _purge(self, subject: str, data: bytes) -> None:
        wanted = WorkPurge.model_validate_json(data)
        _check_own(wanted, subject)
        await purge(self._connection, wanted.subject)


async def _result(action: Awaitable[None]) -> dict[str, str]:
    try:
        await action
    except ValidationError as error:
        return {"refused": str(error.errors(include_url=False, include_input=False))}
    except _NotOwnError as error:
        return {"refused": str(error)}
    except (Retry, Permanent) as error:
        return {"error": str(error)}
    return {}


class _NotOwnError(Exception):
    """It concerns another data set than the one whose subject it was asked on."""


def _check_own(wanted: WorkPurge, subject: str) -> None:
    if wanted.request != subject:
        raise _NotOwnError(f"{wanted.subject} is the work of another data set than {subject} asks for")


def _set_of(subject: str) -> str:
    return subject.split(".")[_SET]


async def _call(connection: Connection, subject: str, body: dict[str, object]) -> dict[str, Any]:
    """An answer of JetStream's API. Raises Retry."""
    async with connection.calling(subject):
        answer: dict[str, Any] = json.loads(await connection.request(subject, json.dumps(body).encode()))
        if "error" in answer:
            APIError.from_error(answer["error"])
        return answer
