"""Chunks of work as single messages. Agents read each by its subject, without a consumer.

Any replica answers a direct get. A lagging one may have no chunk yet, or the former one, so a chunk contains
its name, and the agent that reads another one repeats the request.
"""

from __future__ import annotations

from paddlewheel.bus.markers import DONE
from paddlewheel.bus.nats.api import API, ask_api
from paddlewheel.bus.nats.connection import CALL_TIMEOUT_SECONDS, Connection
from paddlewheel.bus.nats.errors import STREAM_MISSING
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.publish import StreamPublisher
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import WORK, stream_of
from paddlewheel.core.errors import Permanent, Retry

_NOTHING = "404"


class NatsWorkStore:
    """WorkStore on stream `PW_WORK`, which keeps one message for each subject."""

    def __init__(self, connection: Connection, provision: Provision, publisher: StreamPublisher) -> None:
        self._connection = connection
        self._provision = provision
        self._publisher = publisher

    async def put(self, subject: str, data: bytes) -> None:
        if stream_of(subject) != WORK:
            raise Permanent("NoStream", f"{subject} is not a work subject")
        await self._publisher.publish(RawMessage(subject, data))

    async def get(self, subject: str) -> bytes | None:
        client = await self._connection.client()
        answer = await client.ask(
            f"{API}.DIRECT.GET.{WORK.name}.{subject}", b"", CALL_TIMEOUT_SECONDS, repeat=True
        )
        if answer is None:
            self._provision.forget()
            raise Retry(STREAM_MISSING, f"{subject}: no stream {WORK.name}")
        headers = answer.headers or {}
        if "Nats-Sequence" in headers:
            return answer.data or None
        if headers.get("Status") != _NOTHING:
            raise Retry("BusRefused", f"{subject}: {headers.get('Status')} {headers.get('Description', '')}")
        return None

    async def drop(self, subject: str) -> None:
        await self._publisher.publish(RawMessage(subject, b"", DONE))

    async def purge(self, subject: str) -> None:
        await self._provision.ready()
        await ask_api(self._connection, f"STREAM.PURGE.{WORK.name}", {"filter": subject}, absent=0)
