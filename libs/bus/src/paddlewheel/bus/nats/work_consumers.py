"""Consumers of work, made on request: agents may make none, so the installer makes just this kind."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.bus.admin.permissions import WORK_CONSUMERS
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.streams import WORK
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

_PAUSE = 0.5
_AT_ONCE = 64
_HOUR = 3600.0

log = LibraryLogger(__name__)


class WorkConsumer(BaseModel):
    """A short-lived pull consumer of one subject of work, as an agent asks for it. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # One subject, not a pattern: no agent takes the work of others with its own.
    subject: str = Field(pattern=r"^pw\.work\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$", max_length=500)
    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=200)
    ack_wait: float = Field(gt=0, le=_HOUR)
    inactive_after: float = Field(gt=0, le=_HOUR)
    max_in_flight: int = Field(ge=1, le=1000)

    @property
    def request(self) -> str:
        """The subject on which it is asked for, its data set's: an agent can be confined to its own."""
        return WORK_CONSUMERS.replace("*", self.subject.split(".")[3])

    @property
    def config(self) -> ConsumerConfig:
        """Nothing of it but these five values is the asker's choice."""
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


async def ask_for(connection: Connection, wanted: WorkConsumer) -> None:
    """Have the installer make it. Raises Retry, Permanent when it is refused."""
    try:
        answer = json.loads(await connection.request(wanted.request, wanted.model_dump_json().encode()))
    except Retry as error:
        if "no responders" in error.message:
            raise Retry("ConsumerMissing", f"consumer {wanted.name}: bus-installer does not run") from error
        raise
    if answer.get("refused"):
        raise Permanent("ConsumerRefused", f"consumer {wanted.name}: {answer['refused']}")
    if answer.get("error"):
        raise Retry("ConsumerMissing", f"consumer {wanted.name}: {answer['error']}")


class WorkConsumers:
    """Makes what is asked for."""

    def __init__(self, connection: Connection, provision: Provision) -> None:
        self._connection = connection
        self._provision = provision
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        while True:
            lost = asyncio.Event()
            stop_listening = self._connection.on_lost(lost.set)
            try:
                client = await self._connection.client()
                async with self._connection.calling(f"subscribe to {WORK_CONSUMERS}"):
                    await client.subscribe(WORK_CONSUMERS, queue="installers", cb=self._answer)
                await lost.wait()
            except Retry as error:
                log.info("no work consumers are made for now", why=str(error))
            finally:
                stop_listening()
            await asyncio.sleep(_PAUSE)

    async def _answer(self, msg: Msg) -> None:
        async with self._room:
            answer = await self._make(msg.subject, msg.data)
        # Whoever asked asks again.
        with suppress(nats.errors.Error, OSError):
            await msg.respond(json.dumps(answer).encode())

    async def _make(self, subject: str, data: bytes) -> dict[str, str]:
        try:
            wanted = WorkConsumer.model_validate_json(data)
        except ValidationError as error:
            return {"refused": str(error.errors(include_url=False, include_input=False))}
        if wanted.request != subject:
            return {"refused": f"{wanted.subject} is the work of another data set than {subject} asks for"}
        try:
            found = await self._provision.find(WORK.name, wanted.name)
            if found is not None and found.config.filter_subjects != [wanted.subject]:
                return {"refused": f"{wanted.name} is the name of another consumer"}
            await self._provision.consumer(WORK.name, wanted.config)
        except (Retry, Permanent) as error:
            return {"error": str(error)}
        return {}
