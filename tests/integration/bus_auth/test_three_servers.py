"""bus-auth is connected to one server of three and answers for all."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import nats.errors
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from nats.aio.client import Client

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import Permissions
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.callout.serve import CalloutServer
from paddlewheel.bus.nats.callout import NatsCallout
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsCluster
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long


async def authorize(login: Login) -> Grant:
    if login.token != "good":
        raise Permanent("NotAuthenticated", "no")
    may = Permissions(publish=frozenset({"a"}), subscribe=frozenset({"a"}))
    return Grant("somebody", "GUESTS", may, int(time.time()) + 60)


def configuration(key: CalloutKey) -> dict[str, object]:
    public = key.public
    callout = {
        "issuer": public.issuer,
        "auth_users": [public.user],
        "account": "BUS_AUTH",
        "xkey": public.xkey,
    }
    return {
        "accounts": {
            "BUS_AUTH": {"users": [{"nkey": public.user}]},
            "GUESTS": {},
            "HOME": {"jetstream": "enabled"},
            "SYS": {},
        },
        "system_account": "SYS",
        "authorization": {"timeout": 5, "auth_callout": callout},
    }


async def test_a_client_of_any_server_is_let_in_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    private = Ed25519PrivateKey.generate()
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    key, clock = CalloutKey(file), SystemClock()
    cluster = NatsCluster(tmp_path, configuration(key))
    try:
        cluster.start()
        first = next(iter(cluster.servers.values()))
        access = Access(first.url, nkey_seed=key.seed, streams="assume")
        server = CalloutServer(key, authorize, clock, lambda _: None)
        callout = NatsCallout(access, server, clock, name="bus-auth")
        answering = asyncio.create_task(callout.run())
        try:
            await eventually(lambda: is_ready(callout), within=60)
            for each in cluster.servers.values():
                assert await eventually(partial(lets_in, each.url, "good"), within=60)
                assert not await lets_in(each.url, "bad")
        finally:
            await end(answering)
    finally:
        cluster.stop()


async def is_ready(callout: NatsCallout) -> bool:
    return await callout.is_ready() is True


async def lets_in(url: str, token: str) -> bool:
    client = Client()
    try:
        await client.connect(url, user="guest", password=token, allow_reconnect=False, connect_timeout=5)
    except (nats.errors.Error, TimeoutError):
        return False
    else:
        return True
    finally:
        with suppress(nats.errors.Error, asyncio.CancelledError, AttributeError, AssertionError):
            await client.close()
