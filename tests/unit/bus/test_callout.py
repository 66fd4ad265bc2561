"""Requests of the server and answers to them, with real keys."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nkeys
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from paddlewheel.bus.admin.permissions import Permissions
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.bus.callout.hosts import Limits
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.callout.serve import LIMITS, REFUSAL_INTERVAL_SECONDS, Authorize, CalloutServer
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.api import MAX_CALLS
from paddlewheel.testkit.clock import ManualClock

MAY = Permissions(publish=frozenset({"a.>"}), publish_denied=frozenset({"a.b"}), subscribe=frozenset({"c"}))
NOW = int(ManualClock().now().timestamp())
REQUEST_TIMEOUT_SECONDS = 5
"""Seconds that the server waits for an answer."""


def make_key(folder: Path, name: str = "key") -> CalloutKey:
    file = folder / name
    file.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return CalloutKey(file)


def claims_of(jwt: str) -> dict[str, Any]:
    body = jwt.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


class NatsServerSide:
    """The NATS server of the callout: it sends requests and reads the answers."""

    def __init__(self, folder: Path) -> None:
        self.service, self.server = make_key(folder), make_key(folder, "server")
        self.reports: list[str] = []
        self.clock = ManualClock()

    def request(
        self,
        *,
        expires: int = NOW + REQUEST_TIMEOUT_SECONDS,
        options: dict[str, str] | None = None,
        host: str = "",
    ) -> bytes:
        """Sealed."""
        nats = {
            "server_id": {"id": "SERVER"},
            "user_nkey": "USER",
            "client_info": {"host": host or "10.0.0.1"},
            "connect_opts": options or {},
        }
        request = self.server.sign({"exp": expires, "nats": nats})
        return self.server.seal(request.encode(), self.service.public.xkey)

    async def ask(
        self,
        authorize: Authorize,
        *,
        expires: int = NOW + REQUEST_TIMEOUT_SECONDS,
        options: dict[str, str] | None = None,
    ) -> str | None:
        """The signed answer, None when there was none."""
        sealed = self.request(expires=expires, options=options)
        callout = CalloutServer(self.service, authorize, self.clock, self.reports.append)
        answering = asyncio.create_task(callout.answer(sealed, self.server.public.xkey))
        for _ in range(5):
            await asyncio.sleep(0)
        await self.clock.advance(REFUSAL_INTERVAL_SECONDS)
        answer = await answering
        return None if answer is None else self.server.open(answer, self.service.public.xkey).decode()


@pytest.fixture
def side(tmp_path: Path) -> NatsServerSide:
    return NatsServerSide(tmp_path)


async def grants(login: Login) -> Grant:
    return Grant(f"{login.role}/{login.token}", "account", MAY, NOW + 60)


async def test_a_grant_is_a_user_with_exactly_its_rights_for_this_connection(side: NatsServerSide) -> None:
    answer = claims_of(await side.ask(grants, options={"user": "role", "pass": "secret"}) or "")
    user = claims_of(answer["nats"]["jwt"])

    assert (answer["aud"], answer["sub"], answer["iss"]) == ("SERVER", "USER", side.service.public.issuer)
    assert (user["aud"], user["sub"], user["exp"]) == ("account", "USER", NOW + 60)
    assert user["name"] == "role/secret"
    assert user["nats"]["pub"] == {"allow": ["a.>"], "deny": ["a.b"]}
    assert user["nats"]["sub"] == {"allow": ["c"]}
    assert side.reports == ["granted"]


async def test_nothing_allowed_is_everything_denied(side: NatsServerSide) -> None:
    """To the server an empty list is no restriction."""

    async def nothing(_: Login) -> Grant:
        return Grant("x", "account", Permissions(), NOW + 60)

    user = claims_of(claims_of(await side.ask(nothing) or "")["nats"]["jwt"])

    assert user["nats"]["pub"] == user["nats"]["sub"] == {"deny": [">"]}


async def test_the_signature_is_the_issuers(side: NatsServerSide) -> None:
    answer = await side.ask(grants) or ""
    head, body, signature = answer.split(".")
    issuer = nkeys.from_seed(bytearray(side.service.seed.encode()))

    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "ed25519-nkey", "typ": "JWT"}
    assert issuer.verify(f"{head}.{body}".encode(), base64.urlsafe_b64decode(signature + "=="))
    assert issuer.public_key.decode() == side.service.public.user


@pytest.mark.parametrize("error", [Permanent("NotPermitted", "no"), Retry("Unreachable", "away")])
async def test_a_refusal_says_why_and_lets_nobody_in(side: NatsServerSide, error: Permanent | Retry) -> None:
    async def refuses(_: Login) -> Grant:
        raise error

    answer = claims_of(await side.ask(refuses) or "")

    assert answer["nats"]["error"] == str(error)
    assert "jwt" not in answer["nats"]
    assert side.reports == [error.reason]


async def test_an_answer_that_the_server_waits_for_no_longer_is_not_sent(side: NatsServerSide) -> None:
    assert await side.ask(grants, expires=NOW - 1) is None


async def test_what_is_decided_when_the_server_waits_for_no_more_is_given_up(side: NatsServerSide) -> None:
    """Otherwise it would hold a place at the API server while the client's next attempt waits for one."""
    given_up: list[Login] = []

    async def hangs(login: Login) -> Grant:
        try:
            return await asyncio.Future[Grant]()
        finally:
            given_up.append(login)

    callout = CalloutServer(side.service, hangs, _Ends(), side.reports.append)
    sealed = side.request(expires=NOW + REQUEST_TIMEOUT_SECONDS)
    assert await callout.answer(sealed, side.server.public.xkey) is None
    assert (len(given_up), side.reports) == (1, ["TooLate"])


class _Ends(ManualClock):
    """A moment before the server waits no longer."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(NOW + REQUEST_TIMEOUT_SECONDS - 0.05, UTC)


async def test_no_more_are_at_work_than_the_api_server_is_asked_at_a_time(side: NatsServerSide) -> None:
    """With 1,024 at once, each would wait in a queue before each of its reviews, and all would be late."""
    asked, answers = list[str](), asyncio.Event()

    async def slow(login: Login) -> Grant:
        asked.append(login.host)
        await answers.wait()
        return await grants(login)

    callout = CalloutServer(side.service, slow, side.clock, side.reports.append)
    sealed = [side.request(host=f"10.0.{n // 4}.{n % 4}") for n in range(200)]
    logins = [asyncio.create_task(callout.answer(each, side.server.public.xkey)) for each in sealed]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(asked) == LIMITS.of_all == MAX_CALLS
    answers.set()
    assert all(await asyncio.gather(*logins))


async def test_attack_one_host_cannot_take_the_turns_of_others(side: NatsServerSide) -> None:
    """More requests at once than all replicas together work on."""
    reviewed: list[str] = []

    async def refuses(login: Login) -> Grant:
        reviewed.append(login.host)
        raise Permanent("NotAuthenticated", "no")

    callout = CalloutServer(side.service, refuses, side.clock, side.reports.append)
    sealed = {host: side.request(host=host) for host in ("10.0.0.1", "10.0.0.2")}

    async def ask(host: str) -> bytes | None:
        return await callout.answer(sealed[host], side.server.public.xkey)

    flood = [asyncio.create_task(ask("10.0.0.1")) for _ in range(2000)]
    await asyncio.sleep(0)
    good = asyncio.create_task(ask("10.0.0.2"))
    await asyncio.sleep(0)

    assert reviewed.count("10.0.0.1") == Limits().of_host
    assert reviewed.count("10.0.0.2") == 1
    assert side.reports.count("Busy") == 2000 - Limits().of_host - Limits().waiting
    for _ in range(REQUEST_TIMEOUT_SECONDS):
        await side.clock.advance(REFUSAL_INTERVAL_SECONDS)
    assert await good
    await asyncio.gather(*flood)
    # What the server waits for no longer costs nothing.
    assert reviewed.count("10.0.0.1") == Limits().of_host * REQUEST_TIMEOUT_SECONDS


async def test_attack_refusals_of_many_hosts_keep_nobody_out(side: NatsServerSide) -> None:
    async def refuses(login: Login) -> Grant:
        if login.host == "good":
            return await grants(login)
        raise Permanent("NotAuthenticated", "no")

    callout = CalloutServer(side.service, refuses, side.clock, side.reports.append, Limits(of_all=64))

    async def ask(host: str) -> bytes | None:
        return await callout.answer(side.request(host=host), side.server.public.xkey)

    flood = [asyncio.create_task(ask(f"10.0.0.{number}")) for number in range(64)]
    while side.reports.count("NotAuthenticated") < len(flood):
        await asyncio.sleep(0)

    assert await ask("good")
    await side.clock.advance(REFUSAL_INTERVAL_SECONDS)
    await asyncio.gather(*flood)


async def test_of_one_host_too_every_client_has_its_turn(side: NatsServerSide) -> None:
    callout = CalloutServer(side.service, grants, side.clock, side.reports.append)
    sealed = side.request()

    answers = await asyncio.gather(*(callout.answer(sealed, side.server.public.xkey) for _ in range(500)))

    assert all(answers)


async def test_what_is_not_encrypted_for_this_key_is_not_answered(
    side: NatsServerSide, tmp_path: Path
) -> None:
    callout = CalloutServer(side.service, grants, side.clock, side.reports.append)
    stranger = make_key(tmp_path, "stranger")
    sealed = side.server.seal(b"{}", stranger.public.xkey)

    for data, sender in (
        (sealed, side.server.public.xkey),
        (b"plain", ""),
        (sealed, "XNONSENSE"),
        (sealed, ""),
    ):
        assert await callout.answer(data, sender) is None
    assert side.reports == ["AnotherKey", *["MalformedRequest"] * 3]
    assert callout.met_another_key


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_file_that_is_no_key_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)

    with pytest.raises(Permanent, match=r"key: .*Ed25519"):
        CalloutKey(tmp_path / "key")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = generate_private_key(SECP256R1())
    (tmp_path / "key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    with pytest.raises(Permanent, match="not an Ed25519 key"):
        CalloutKey(tmp_path / "key")


def test_the_token_is_in_no_text_about_a_client() -> None:
    assert "secret" not in repr(Login("role", "secret"))
    assert Login("subscriber.team-a", "").shown == "subscriber.team-a"
    assert Login("eyJhbGci" + "x" * 500, "").shown == "eyJhbGci..."
