"""A key-value bucket in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from paddlewheel.bus.keys import check_key, check_pattern
from paddlewheel.bus.ports import Entry
from paddlewheel.bus.streams import matches
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound


class MemoryKeyValue:
    """KeyValue over a dict; watchers are queues."""

    def __init__(self, bucket: str, check_up: Callable[[], None]) -> None:
        self._bucket = bucket
        self._check_up = check_up
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._watchers: dict[asyncio.Queue[Entry | None], str] = {}

    async def get(self, key: str) -> Entry:
        self._check_up()
        entry = self._entries.get(check_key(key))
        if entry is None:
            raise NotFound(f"{self._bucket}: {key}")
        return entry

    async def create(self, key: str, value: bytes) -> int:
        self._check_up()
        if check_key(key) in self._entries:
            raise AlreadyExists(f"{self._bucket}: {key}")
        return self._write(key, value)

    async def put(self, key: str, value: bytes) -> int:
        self._check_up()
        return self._write(check_key(key), value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self._check_up()
        entry = self._entries.get(check_key(key))
        if entry is None or entry.revision != revision:
            raise Conflict(f"{self._bucket}: {key} is not at revision {revision}")
        return self._write(key, value)

    async def delete(self, key: str) -> None:
        self._check_up()
        if self._entries.pop(check_key(key), None):
            self._revision += 1
            self._tell(Entry(key, None, self._revision))

    async def entries(self, pattern: str) -> list[Entry]:
        self._check_up()
        return self._matching(check_pattern(pattern))

    async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
        changes: asyncio.Queue[Entry | None] = asyncio.Queue()
        for entry in self._matching(check_pattern(pattern)):
            changes.put_nowait(entry)
        changes.put_nowait(None)
        self._watchers[changes] = pattern
        try:
            while True:
                yield await changes.get()
        finally:
            del self._watchers[changes]

    def _matching(self, pattern: str) -> list[Entry]:
        found = (replace(e, is_stored=True) for k, e in self._entries.items() if matches(pattern, k))
        return sorted(found, key=lambda entry: entry.revision)

    def _write(self, key: str, value: bytes) -> int:
        self._revision += 1
        self._entries[key] = Entry(key, value, self._revision)
        self._tell(self._entries[key])
        return self._revision

    def _tell(self, entry: Entry) -> None:
        for changes, pattern in self._watchers.items():
            if matches(pattern, entry.key):
                changes.put_nowait(entry)
