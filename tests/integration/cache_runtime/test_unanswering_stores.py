"""A store that does not answer for one of its objects: the client then takes the key for a prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.integration.cache_runtime.test_copies import Copies, copies

from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.testkit.storage import ObjectStore

pytestmark = pytest.mark.timeout(900)

OBJECTS = {"a": b"1", "b": b"22", "b-raw": b"333", "c": b"4444"}
SILENT = "b"
HEADERS = {"Last-Modified": "Tue, 24 Nov 2026 10:00:00 GMT", "ETag": '"x"'}
__all__ = ["copies"]


def listing(prefix: str) -> str:
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-24T10:00:00.000Z</LastModified><ETag>x</ETag>"
        f"<Size>{len(data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, data in sorted(OBJECTS.items())
        if key.startswith(prefix)
    )
    ends = f"<Name>data</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?><ListBucketResult>{ends}{entries}</ListBucketResult>'


async def answer(request: web.Request) -> web.StreamResponse:
    """As S3 does, but for the headers of one object."""
    key = request.match_info.get("key", "")
    if not key:
        prefix = request.query.get("prefix", "")
        return web.Response(text=listing(prefix), content_type="application/xml")
    if request.method == "HEAD" and key == SILENT:
        return web.Response(status=503)
    if key not in OBJECTS:
        return web.Response(status=404)
    return web.Response(body=OBJECTS[key], headers=HEADERS)


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    app = web.Application()
    app.router.add_route("*", "/data", answer)
    app.router.add_route("*", "/data/{key:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield ObjectStore(endpoint=f"127.0.0.1:{server.port}", filer="", access_key="keys", secret_key="keys")


async def test_what_the_store_does_not_answer_for_is_waited_for_and_has_not_left(
    copies: Copies, store: ObjectStore
) -> None:
    """The client counts what it lists below that key, as if it had found more than it was asked for."""
    copies.use_store(store)
    sync = SyncOperation(source=store.uri("data"), secret="source")
    copied = await copies.transfer.copy(sync, [b"a", b"b", b"c"], 0, set())
    assert set(copied.failed) == copied.away == {b"b"}
    assert "503" in copied.failed[b"b"]
    assert "left" not in copied.failed[b"b"]


async def test_what_the_filters_leave_out_is_not_copied_instead(copies: Copies, store: ObjectStore) -> None:
    copies.use_store(store)
    sync = SyncOperation(source=store.uri("data"), secret="source", exclude=["*-raw"])
    await copies.transfer.copy(sync, [b"a", b"b", b"c"], 0, set())
    found = copies.written()
    assert set(found) == {"a", "b", "c"}
    assert all(data == OBJECTS[name] for name, data in found.items())
