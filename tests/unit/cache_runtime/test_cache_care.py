"""What an agent finds out about the object store of its mount, and how often it asks."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from cache_runtime import timing
from cache_runtime.engines.juicefs import care
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.care import Care, StoreAddress, Surroundings, ask_store, store_address
from cache_runtime.engines.juicefs.client import JuiceFsClient
from cache_runtime.engines.juicefs.mount import JuiceFsMount, MountPlan
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.ports import Ailment
from cache_runtime.secret_files import SecretFiles
from cache_runtime.timing import STORE_CHECK_INTERVAL_SECONDS
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock

STORE = StoreAddress("s3", 9000)
Answer = Callable[[bytes | Exception], "Writer"]


class Writer:
    """Of a connection that takes everything."""

    def __init__(self) -> None:
        self.transport, self.is_open = self, True

    def write(self, data: bytes) -> None:
        assert data.startswith(b"HEAD / HTTP/1.1\r\n")

    def abort(self) -> None:
        self.is_open = False


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Sets what a store says or how the connection fails, whatever it is asked."""

    def store_says(said: bytes | Exception) -> Writer:
        writer = Writer()

        async def connect(*_: object, **__: object) -> tuple[asyncio.StreamReader, Writer]:
            if isinstance(said, Exception):
                raise said
            reader = asyncio.StreamReader()
            reader.feed_data(said)
            reader.feed_eof()
            return reader, writer

        monkeypatch.setattr(asyncio, "open_connection", connect)
        return writer

    return store_says


@pytest.mark.parametrize(
    ("bucket", "address"),
    [
        ("redis://host:6379/1", None),
        ("tikv://host:2379/1", None),
        ("ceph://cluster", None),
        ("/var/volumes", None),
        ("http://[::1/b", None),
        ("http://s3:x/b", None),
        ("http://s3:9000/b", StoreAddress("s3", 9000)),
        ("http://s3/b", StoreAddress("s3", 80)),
        ("https://b.bj.bcebos.com", StoreAddress("b.bj.bcebos.com", 443, is_tls=True)),
    ],
)
def test_only_stores_that_speak_http_are_asked(bucket: str, address: StoreAddress | None) -> None:
    assert store_address(bucket) == address


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 501 Not Implemented\r\n\r\n",
        b"HTTP/1.1 503 Slow Down\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * (1 << 17),
        ssl.SSLError(1, "wrong version number"),
    ],
    ids=["keys", "no HEAD", "throttled", "long", "no TLS"],
)
async def test_a_store_is_there_whatever_it_answers(answer: Answer, said: bytes | Exception) -> None:
    connection = answer(said)
    assert await ask_store(STORE) == ""
    assert connection.is_open == isinstance(said, Exception)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"", "the connection was closed"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "Connection refused"),
        (TimeoutError(), "silent for 4 s"),
        (UnicodeError("label too long"), "'s3' is no host name"),
    ],
)
async def test_a_store_that_does_not_answer_says_why(
    answer: Answer, said: bytes | Exception, problem: str
) -> None:
    answer(said)
    assert await ask_store(STORE) == problem


async def test_a_store_that_answers_is_asked_seldom_and_one_that_does_not_with_each_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, problem = 0, ""

    async def ask(_: StoreAddress) -> str:
        nonlocal asked
        asked += 1
        return problem

    monkeypatch.setattr(care, "ask_store", ask)
    for name in care._PROXIES:
        monkeypatch.delenv(name, raising=False)
    clock = ManualClock()
    cared = Care(Surroundings(tmp_path, []), make_engine("http://s3:9000/b"), clock)
    for _ in range(3):
        assert await cared.look() is None
    assert asked == 1
    problem = "silent"
    await clock.advance(STORE_CHECK_INTERVAL_SECONDS)
    looks = [await cared.look() for _ in range(3)]
    assert asked == 4
    assert [look.reason if look else None for look in looks] == [None, *["StoreUnreachable"] * 2]
    problem = ""
    assert await cared.look() is None


async def test_a_look_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, ill, looks = ManualClock(), Ailment("CacheDiskFull", "full"), 0

    async def look(_: Care) -> Ailment:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise UnicodeError("label too long")
        return ill

    monkeypatch.setattr(Care, "look", look)
    mount = make_mount(tmp_path, clock)
    caring = asyncio.create_task(mount._care(make_engine("http://s3:9000/b")))
    while looks < 2 and not caring.done():
        await clock.advance(timing.MOUNT_CHECK_INTERVAL_SECONDS)
    assert not caring.done()
    assert mount.ailment == ill
    await end(caring)


def make_engine(bucket: str) -> EngineSecret:
    return EngineSecret("digits", "minio", bucket, "redis://redis:6379/1")


def make_mount(directory: Path, clock: ManualClock) -> JuiceFsMount:
    """One that mounts nothing."""

    async def on_change(_: str) -> None:
        pass

    plan = MountPlan(directory / "mnt", directory / "state", [], 1)
    client, volumes, secrets = cast(JuiceFsClient, None), cast(Volumes, None), cast(SecretFiles, None)
    return JuiceFsMount(plan, client, volumes, secrets, clock, on_change)
