"""Slow, silent, changing and refusing stores: an HTTP server of the test, on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, web

from paddle_runtime.cache import Entry, ModelCache
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.location import Bucket
from paddle_runtime.ports import StoredFile
from paddle_runtime.stores import S3Files
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.core.sockets import free_ports

MIB = 1 << 20
CONTENT = bytes(range(256)) * (4 * MIB // 256)
MODIFIED = datetime(2026, 1, 1, tzinfo=UTC)
IDLE = timedelta(seconds=1)
LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated><Contents><Key>p/m.json</Key>{tag}
<LastModified>2026-01-01T00:00:00.123Z</LastModified><Size>{size}</Size></Contents></ListBucketResult>"""


class ScriptedStore:
    """A store with one object. The attributes say how it behaves."""

    def __init__(self) -> None:
        self.tag = '"first"'
        self.pause = 0.0
        """Seconds between two pieces of 1/20 of the object."""
        self.silent_after: int | None = None
        """Bytes of an answer after which nothing follows, the connection stays."""
        self.cut_after: int | None = None
        """Bytes of an answer after which the connection ends."""
        self.refusal: web.Response | None = None
        self.asked: list[web.Request] = []
        self.ended = asyncio.Event()

    @property
    def offsets(self) -> list[int]:
        """Where each request for the object began."""
        return [_offset(request) for request in self.asked if "list-type" not in request.query]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.refusal is not None:
            return self.refusal
        if "list-type" in request.query:
            tag = f"<ETag>{self.tag}</ETag>" if self.tag else ""
            return web.Response(
                text=LISTING.format(tag=tag, size=len(CONTENT)), content_type="application/xml"
            )
        if request.headers.get("If-Match", self.tag) != self.tag:
            return web.Response(status=412)
        return await self._send(request)

    async def _send(self, request: web.Request) -> web.StreamResponse:
        offset = _offset(request)
        answer = web.StreamResponse(status=206 if offset else 200, headers=self._headers(offset))
        await answer.prepare(request)
        sent, step = 0, len(CONTENT) // 20
        with suppress(ClientConnectionError):
            for begin in range(offset, len(CONTENT), step):
                if self.cut_after is not None and sent >= self.cut_after and request.transport:
                    request.transport.close()
                if self.silent_after is not None and sent >= self.silent_after:
                    await self.ended.wait()
                await answer.write(CONTENT[begin : begin + step])
                sent += step
                await asyncio.sleep(self.pause)
        return answer

    def _headers(self, offset: int) -> dict[str, str]:
        headers = {
            "Content-Length": str(len(CONTENT) - offset),
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        }
        if offset:
            headers["Content-Range"] = f"bytes {offset}-{len(CONTENT) - 1}/{len(CONTENT)}"
        return {**headers, "ETag": self.tag} if self.tag else headers


def _offset(request: web.Request) -> int:
    return int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])


@pytest.fixture
async def scripted() -> AsyncIterator[tuple[ScriptedStore, S3Files]]:
    """The server, and a client of it whose time-outs are short."""
    store, port = ScriptedStore(), free_ports(1)[0]
    app = web.Application()
    app.router.add_get("/{path:.*}", store.answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    settings = PaddleRuntimeSettings(model_uri="minio://store/b/p", store_anonymous=True)
    yield store, S3Files(Bucket("b", "p/", f"http://127.0.0.1:{port}"), settings, IDLE)
    store.ended.set()
    await runner.cleanup()


async def fetched(files: S3Files, root: Path, *, failures: int) -> Entry:
    """By as many attempts as needed, of which at most so many fail."""
    cache = ModelCache(root, 1 << 30)
    for _ in range(failures):
        with suppress(Unavailable):
            return await cache.get(files, "where", "")
    return await cache.get(files, "where", "")


def check(entry: Entry) -> None:
    entry.lock.close()
    assert (entry.directory / "m.json").read_bytes() == CONTENT


async def test_a_slow_store_may_take_longer_than_it_may_be_silent(
    scripted: tuple[ScriptedStore, S3Files], tmp_path: Path
) -> None:
    """Four times as long: the library's two attempts more do not hide a limit of the whole."""
    store, files = scripted
    store.pause = 4 * IDLE.total_seconds() / 20

    check(await fetched(files, tmp_path, failures=0))


async def test_from_a_silent_store_the_rest_is_fetched(
    scripted: tuple[ScriptedStore, S3Files], tmp_path: Path
) -> None:
    store, files = scripted
    store.silent_after = 3 * MIB

    check(await fetched(files, tmp_path, failures=2))
    assert len(store.offsets) > 1
    assert sorted(set(store.offsets)) == store.offsets
    assert {request.headers.get("If-Match") for request in store.asked[1:]} == {store.tag}


@pytest.mark.parametrize("tag", ['"first"', ""], ids=["tag", "no tag"])
async def test_from_a_store_that_cuts_each_answer_the_rest_is_fetched(
    scripted: tuple[ScriptedStore, S3Files], tmp_path: Path, tag: str
) -> None:
    store, files = scripted
    store.tag, store.cut_after = tag, 3 * MIB // 2

    check(await fetched(files, tmp_path, failures=5))
    assert store.offsets[0] == 0
    assert store.offsets[-1] > MIB
    last = store.asked[-1].headers
    assert last.get("If-Match") == (tag or None)
    assert ("If-Unmodified-Since" in last) is not bool(tag)


@pytest.mark.parametrize("tag", ['"first"', ""], ids=["tag", "no tag"])
async def test_what_a_store_lists_is_told_with_its_tag_or_without(
    scripted: tuple[ScriptedStore, S3Files], tag: str
) -> None:
    store, files = scripted
    store.tag = tag

    modified = MODIFIED + timedelta(milliseconds=123)
    assert await files.list() == [StoredFile("m.json", len(CONTENT), tag, modified)]


def replace(store: ScriptedStore) -> None:
    store.tag = '"second"'


def remove(store: ScriptedStore) -> None:
    store.refusal = web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")


@pytest.mark.parametrize("change", [replace, remove])
async def test_a_file_that_changed_since_it_was_listed_is_not_read(
    scripted: tuple[ScriptedStore, S3Files], change: Callable[[ScriptedStore], None]
) -> None:
    store, files = scripted
    listed = await files.list()
    change(store)

    with pytest.raises(Retry, match=r"StoreChanged: m.json was changed"):
        await anext(files.read(listed[0], 0))


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (400, "<Error><Message>expecting 'eu-west-1'</Message></Error>", "expecting 'eu-west-1': check"),
        (301, "", "incorrectly configured region"),
    ],
)
async def test_what_a_store_refuses_is_not_asked_again(
    scripted: tuple[ScriptedStore, S3Files], status: int, text: str, words: str
) -> None:
    store, files = scripted
    store.refusal = web.Response(status=status, text=text)

    with pytest.raises(ModelFault, match="check PADDLE_RUNTIME_STORE_REGION and _ENDPOINT") as fault:
        await files.list()

    assert words in fault.value.message
    assert len(store.asked) == 1
