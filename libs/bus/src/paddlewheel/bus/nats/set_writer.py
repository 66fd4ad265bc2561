"""Writes for agents with tokens: what is their set's own, and within its share, is published for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from nats.aio.msg import Msg

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.set_quotas import QUOTAS, Quotas
from paddlewheel.bus.admin.set_reads import API, Answer, busy
from paddlewheel.bus.admin.set_writes import (
    MAX_HEADERS,
    Write,
    full,
    largest,
    parse_write,
    refusal,
    too_large,
    unknown,
    write_subjects,
)
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import TIMEOUT
from paddlewheel.bus.nats.set_requests import (
    ANSWERED,
    UNANSWERED,
    Kind,
    Report,
    SetRequests,
    resting_in_silence,
    send,
)
from paddlewheel.bus.turns import Limits, Turn
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry, Unavailable

_MIB = 1 << 20
LIMITS = Limits(
    at_work=8,
    waiting=512,
    all_at_work=16,
    all_waiting=64 * 512,
    bytes=4 * _MIB,
    all_bytes=48 * _MIB,
    patience=1.0,
)
"""Of each data set. Agents wait for 5 s."""
FULL = "full"
"""Outcome of what the set has no room for."""
_NOBODY: Answer = {"Status": "503"}, b""
"""As the server answers where no stream is."""

WRITES = Kind(
    "writes",
    frozenset(write_subjects().values()),
    headers=MAX_HEADERS,
    body=largest,
    heard=8 * _MIB,
    limits=LIMITS,
    refusal=refusal,
    too_large=too_large,
    busy=busy,
    unanswered=unknown,
)


class SetWriter(SetRequests):
    """Publishes agents' records and work."""

    kind = WRITES

    def __init__(
        self,
        access: Access,
        clock: Clock,
        report: Report,
        *,
        name: str,
        quotas: Mapping[str, int] = QUOTAS,
    ) -> None:
        super().__init__(access, clock, report, name=name)
        # Of all connections: what was stored over one stays.
        self._publication = partial(Publication, quotas=Quotas(quotas), clock=clock)

    def worker(self, client: Client) -> Publication:
        return self._publication(client)


class Publication:
    """Publishes what there is room for, once, and hands the stream's acknowledgement back."""

    def __init__(self, client: Client, quotas: Quotas, clock: Clock) -> None:
        self._client, self._quotas, self._clock = client, quotas, clock
        self._looks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def work(self, msg: Msg, turn: Turn) -> str:
        write = parse_write(msg.subject, msg.headers or {}, msg.data)
        with resting_in_silence(turn):
            if not self._quotas.has_room(write) and not await self._finds_room(write):
                await send(self._client, msg.reply, full())
                return FULL
            try:
                answer = await self._publish(write)
            except Unavailable:
                return UNANSWERED
        await send(self._client, msg.reply, answer)
        return ANSWERED

    async def _publish(self, write: Write) -> Answer:
        """Raises Unavailable when nobody knows whether it is stored; Retry, Permanent when it is not."""
        is_stored = False
        self._quotas.begin(write)
        try:
            found = await self._client.ask(
                write.subject, write.body, TIMEOUT, headers=dict(write.headers) or None
            )
            is_stored = found is not None and "error" not in json.loads(found.data)
        finally:
            self._quotas.end(write, is_stored=is_stored)
        return _NOBODY if found is None else ({}, found.data)

    async def _finds_room(self, write: Write) -> bool:
        """After what is gone is forgotten. Raises Retry."""
        which = (write.stream, write.set_uid)
        async with self._looks.setdefault(which, asyncio.Lock()):
            if not self._quotas.has_room(write) and self._quotas.may_look(write, self._clock.monotonic()):
                await self._look(write)
            return self._quotas.has_room(write)

    async def _look(self, write: Write) -> None:
        found: set[int] | None = None
        self._quotas.begin_look(write)
        try:
            found = await self._stored(write)
        finally:
            self._quotas.end_look(write, found, self._clock.monotonic())

    async def _stored(self, write: Write) -> set[int]:
        """Hashes of the set's subjects that its stream holds. Raises Retry."""
        found, told, total = set[int](), 0, 1
        while told < total:
            page, total = await self._page(write, told)
            if not page:
                break
            found.update(map(hash, page))
            told += len(page)
        return found

    async def _page(self, write: Write, offset: int) -> tuple[Mapping[str, int], int]:
        """Subjects, 100,000 at most, and how many there are. Raises Retry."""
        subject = f"{API}.STREAM.INFO.{write.stream}"
        wanted = json.dumps({"subjects_filter": write.everything, "offset": offset}).encode()
        answer = await self._client.ask(subject, wanted, TIMEOUT, repeat=True)
        found: dict[str, Any] = json.loads(answer.data) if answer else {}
        if "state" not in found:
            raise Retry("BusRefused", f"{subject}: {found.get('error') or 'no responders'}")
        return found["state"].get("subjects") or {}, int(found.get("total", 0))
