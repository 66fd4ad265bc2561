"""A store that does not answer for one of its objects: the client then takes the key for a prefix. And one
that lists what it was not asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.integration.cache_runtime.test_copies import Copies, copies

from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.testkit.storage import ObjectStore

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OBJECTS = {"a": b"1", "b": b"22", "b-raw": b"333", "b/../../outside": b"o", "c": b"4444", "c ": b"55555"}
SILENT, NAMED, ALWAYS_LISTED = "b", [b"a", b"b", b"c"], "b/../../outside"
HEADERS = {"Last-Modified": "Tue, 24 Nov 2026 10:00:00 GMT", "ETag": '"x"'}
__all__ = ["copies"]


def listing(prefix: str, marker: str) -> str:
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-24T10:00:00.000Z</LastModified><ETag>x</ETag>"
        f"<Size>{len(data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, data in sorted(OBJECTS.items())
        if (key.startswith(prefix) and key > marker) or key == ALWAYS_LISTED
    )
    ends = f"<Name>data</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?><ListBucketResult>{ends}{entries}</ListBucketResult>'


async def answer(request: web.Request) -> web.StreamResponse:
    """As S3 does, but for the headers of one object."""
    key = request.match_info.get("key", "")
    if not key:
        prefix, marker = (request.query.get(name, "") for name in ("prefix", "marker"))
        return web.Response(text=listing(prefix, marker), content_type="application/xml")
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


def sync_of(store: ObjectStore, **options: object) -> SyncOperation:
    return SyncOperation.model_validate({"source": store.uri("data"), "secret": "source", **options})


async def test_what_the_store_does_not_answer_for_is_waited_for_and_has_not_left(
    copies: Copies, store: ObjectStore
) -> None:
    copies.use_store(store)
    copied = await copies.transfer.copy(sync_of(store), NAMED, 0, set())
    assert set(copied.failed) == copied.away == {b"b"}
    assert copied.kept == 0
    assert "503" in copied.failed[b"b"]
    assert "left" not in copied.failed[b"b"]


@pytest.mark.parametrize("force", [False, True])
async def test_nothing_is_copied_in_place_of_what_the_store_does_not_answer_for(
    copies: Copies, store: ObjectStore, force: bool
) -> None:
    """What is below it was perhaps left out, by a filter or for where it would lead."""
    copies.use_store(store)
    await copies.transfer.copy(sync_of(store, destination="d/e", force_update=force), NAMED, 0, set())
    assert copies.written() == {f"d/e/{key}": OBJECTS[key] for key in ("a", "c")}


async def test_a_store_that_lists_what_it_was_not_asked_for_writes_nothing_outside(
    copies: Copies, store: ObjectStore
) -> None:
    """No line of a list can hold this key, so the client lists what is at it."""
    copies.use_store(store)
    await copies.transfer.copy(sync_of(store, destination="d/e"), [b"c "], 0, set())
    assert copies.written().keys() <= {"d/e/c "}
