"""The health endpoints on a real socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from paddlewheel.core import http
from paddlewheel.devcluster.certs import Authority
from paddlewheel.testkit.wait import eventually


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


async def breaks() -> bool:
    raise ConnectionError("bus is gone")


async def hangs() -> bool:
    await asyncio.Event().wait()
    return True


async def test_readiness_names_the_checks_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CHECK_TIMEOUT_SECONDS", 0.05)
    checks = {"a": yes, "b": no, "c": breaks, "d": hangs}
    async with http.serve(0, checks, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"a": True, "b": False, "c": False, "d": False}
        async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200


async def test_ready_metrics_and_own_routes() -> None:
    async def explain(_: web.Request) -> web.Response:
        return web.Response(text="because")

    routes = [web.get("/explain", explain)]
    service = http.serve(0, {"a": yes}, routes, host="127.0.0.1")
    async with service as port, aiohttp.ClientSession() as session:
        for path, words in (("readyz", '"a": true'), ("metrics", "process_"), ("explain", "because")):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                assert answer.status == 200
                assert words in await answer.text()


async def test_what_is_not_there_is_refused_as_json() -> None:
    async with http.serve(0, {}, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/nowhere") as answer:
            assert answer.status == 404
            assert await answer.json() == {"error": "GET /nowhere: Not Found"}
        async with session.post(f"http://127.0.0.1:{port}/healthz") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")


async def test_the_number_of_connections_is_limited() -> None:
    async with http.serve(0, {}, host="127.0.0.1", limits=http.Limits(connections=2)) as port:
        opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(20)))
        reads = [asyncio.create_task(reader.read()) for reader, _ in opened]

        await eventually(lambda: sum(read.done() for read in reads) >= 18, what="all but two are refused")
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()

    answers = await asyncio.gather(*reads)
    assert sorted(answer[:12] for answer in answers) == [b"", b"", *[b"HTTP/1.1 503"] * 18]


async def test_one_address_cannot_take_all_connections() -> None:
    limits = http.Limits(connections=10, of_one_address=2)
    async with http.serve(0, {}, host="127.0.0.1", limits=limits) as port:
        for _ in range(3):
            opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(5)))
            reads = [asyncio.create_task(reader.read()) for reader, _ in opened]
            await eventually(lambda: sum(read.done() for read in reads) == 3, what="three are refused")  # noqa: B023

            other = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
            url = f"http://127.0.0.1:{port}/healthz"
            async with aiohttp.ClientSession(connector=other) as session, session.get(url) as answer:
                assert answer.status == 200
            for _, writer in opened:
                writer.close()
                await writer.wait_closed()
            await asyncio.gather(*reads)


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
"""That of the tests, and that of the services."""


@pytest.fixture
def store(tmp_path: Path) -> ssl.SSLContext:
    """The TLS of a client of the server whose certificate is in `tmp_path`."""
    authority = Authority(tmp_path / "authority", "authority")
    made = authority.server("server", "webhook", [], [IPv4Address("127.0.0.1")])
    made.certificate.rename(tmp_path / "tls.crt")
    made.key.rename(tmp_path / "tls.key")
    return ssl.create_default_context(cafile=str(authority.identity.certificate))


@LOOPS
def test_connections_without_a_handshake_are_limited(
    loop: Callable[[], asyncio.AbstractEventLoop], store: ssl.SSLContext, tmp_path: Path
) -> None:
    async def flood() -> None:
        limits = http.Limits(connections=2, handshake=600.0)
        async with http.serve(0, {}, host="127.0.0.1", limits=limits, tls_dir=tmp_path) as port:
            opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(20)))
            reads = [asyncio.create_task(closed(reader)) for reader, _ in opened]
            await eventually(lambda: sum(read.done() for read in reads) == 18, what="all but two are closed")

            for _, writer in opened:
                writer.close()
            await asyncio.gather(*reads)
            await eventually(lambda: healthy(port, store), what="others are answered when these are gone")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(flood())


@LOOPS
def test_a_client_has_little_time_for_its_handshake(
    loop: Callable[[], asyncio.AbstractEventLoop], store: ssl.SSLContext, tmp_path: Path
) -> None:
    async def silent() -> None:
        limits = http.Limits(connections=1, handshake=1.0)
        async with http.serve(0, {}, host="127.0.0.1", limits=limits, tls_dir=tmp_path) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)

            await asyncio.wait_for(closed(reader), 90)
            writer.close()
            # A busy machine may take longer than that for a handshake, too.
            await eventually(lambda: healthy(port, store), what="its place is free")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(silent())


async def closed(reader: asyncio.StreamReader) -> None:
    try:
        assert await reader.read() == b""
    except ConnectionResetError:
        return


async def healthy(port: int, store: ssl.SSLContext) -> bool:
    url = f"https://127.0.0.1:{port}/healthz"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=store) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def test_a_connection_without_a_request_is_closed() -> None:
    async with http.serve(0, {}, host="127.0.0.1", limits=http.Limits(idle=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await asyncio.wait_for(reader.read(), 90) == b""
        writer.close()
        await writer.wait_closed()


async def test_an_answer_that_nobody_reads_does_not_keep_its_connection() -> None:
    """50 MB: more than the kernel keeps for a connection."""
    asked: list[web.Request] = []

    async def large(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(body=bytes(50_000_000))

    def cut_off() -> bool:
        return bool(asked) and (asked[0].transport is None or asked[0].transport.is_closing())

    routes, limits = [web.get("/large", large)], http.Limits(answer=0.2)
    async with http.serve(0, {}, routes, host="127.0.0.1", limits=limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(cut_off, what="the client is cut off")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readexactly(50_000_000), 90)
        writer.close()
