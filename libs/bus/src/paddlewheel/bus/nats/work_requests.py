"""What the installer does about work on request: agents may make no consumers of it and remove none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.bus.admin.permissions import WORK_CONSUMERS, WORK_PURGES
from paddlewheel.bus.nats.connection import TIMEOUT, Connection
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.streams import WORK
from paddlewheel.bus.turns import Limits, Turns
from paddlewheel.contracts.crds.limits import PARTITIONS
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

_PAUSE = 0.5
_HOUR = 3600.0
PER_SET = 2 * PARTITIONS
"""Consumers of one data set's work, at most: one for each partition of each run, those of a run that has just
ended included. Of those that are asked for at the same moment, some more may be made."""
IN_ALL = 8 * PER_SET
"""Those of all sets: with certificates an agent may ask in the name of any. The chart's server takes more."""
TURNS = Limits(at_work=16, waiting=PARTITIONS)
"""Of each data set, so that none waits for another's. The largest set asks for a whole run at once."""
_SET = 3
"""Which token of a subject of work is the data set's uid."""

log = LibraryLogger(__name__)

Act = Callable[[str, bytes], Awaitable[None]]
"""What is done about a request, of its subject and body."""


class WorkConsumer(BaseModel):
    """A short-lived pull consumer of one subject of work, as an agent asks for it. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # One subject, not a pattern: no agent takes the work of others with its own.
    subject: str = Field(pattern=r"^pw\.work\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2,}$", max_length=200)
    ack_wait: float = Field(gt=0, le=_HOUR)
    inactive_after: float = Field(gt=0, le=_HOUR)
    max_in_flight: int = Field(ge=1, le=1000)

    @property
    def request(self) -> str:
        """The subject on which it is asked for, its data set's: an agent can be confined to its own."""
        return WORK_CONSUMERS.replace("*", _set_of(self.subject))

    @property
    def name(self) -> str:
        """Its subject in one token: nobody can take the name that another's needs. No token has a `=`."""
        return self.subject.removeprefix("pw.work.").replace(".", "=")

    @property
    def siblings(self) -> str:
        """How the names of its data set's consumers begin."""
        return "=".join((*self.name.split("=")[:2], ""))

    @property
    def config(self) -> ConsumerConfig:
        """Nothing of it but these four values is the asker's choice."""
        return ConsumerConfig(
            name=self.name,
            durable_name=self.name,
            filter_subjects=[self.subject],
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            max_deliver=-1,
            max_ack_pending=self.max_in_flight,
            inactive_threshold=self.inactive_after,
        )


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


async def ask_for(connection: Connection, wanted: WorkConsumer) -> None:
    """Have the installer make it. Raises Retry, Permanent when it is refused."""
    await _ask(connection, wanted, "ConsumerMissing", f"consumer of {wanted.subject}")


async def ask_to_purge(connection: Connection, subject: str) -> None:
    """Have the installer remove the work. Raises Retry, Permanent when it is refused."""
    await _ask(connection, WorkPurge(subject=subject), "WorkNotRemoved", f"purge of {subject}")


async def _ask(connection: Connection, wanted: WorkConsumer | WorkPurge, reason: str, what: str) -> None:
    try:
        answer = json.loads(await connection.request(wanted.request, wanted.model_dump_json().encode()))
    except Retry as error:
        if "no responders" in error.message:
            raise Retry(reason, f"{what}: bus-installer does not run") from error
        raise
    if answer.get("refused"):
        raise Permanent("WorkRefused", f"{what}: {answer['refused']}")
    if answer.get("error"):
        raise Retry(reason, f"{what}: {answer['error']}")


async def purge(connection: Connection, subject: str) -> None:
    """Remove work, as the role that may. Raises Retry."""
    await _call(connection, f"$JS.API.STREAM.PURGE.{WORK.name}", {"filter": subject})


class WorkRequests:
    """Makes and removes what is asked for."""

    def __init__(self, connection: Connection, provision: Provision) -> None:
        self._connection = connection
        self._provision = provision
        self._turns = Turns(TURNS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        try:
            await self._listen({WORK_CONSUMERS: self._make, WORK_PURGES: self._purge})
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
                log.info("no work consumers are made for now", why=str(error))
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

    async def _make(self, subject: str, data: bytes) -> None:
        wanted = WorkConsumer.model_validate_json(data)
        _check_own(wanted, subject)
        if await self._provision.find(WORK.name, wanted.name) is None:
            await self._check_number(wanted)
        await self._provision.consumer(WORK.name, wanted.config)

    async def _purge(self, subject: str, data: bytes) -> None:
        wanted = WorkPurge.model_validate_json(data)
        _check_own(wanted, subject)
        await purge(self._connection, wanted.subject)

    async def _check_number(self, wanted: WorkConsumer) -> None:
        """Raises Retry: those that nobody uses vanish by themselves."""
        names = await self._names()
        own = sum(name.startswith(wanted.siblings) for name in names)
        if own >= PER_SET or len(names) >= IN_ALL:
            raise Retry("TooManyConsumers", f"its data set has {own} consumers, all together {len(names)}")

    async def _names(self) -> list[str]:
        found: list[str] = []
        while True:
            page = await _call(
                self._connection, f"$JS.API.CONSUMER.NAMES.{WORK.name}", {"offset": len(found)}
            )
            if not page.get("consumers"):
                return found
            found += page["consumers"]
            if len(found) >= page["total"]:
                return found


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


def _check_own(wanted: WorkConsumer | WorkPurge, subject: str) -> None:
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
