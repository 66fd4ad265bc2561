"""Who is not let in, and what happens while bus-auth or the API server is away."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import nats.errors
import pytest

from bus_auth.domain.names import GROUP
from paddlewheel.bus.admin.permissions import AGENT
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.bus_auth import RBAC_ROLES, ROLE_BINDINGS, BusAuthStand, claims_of
from paddlewheel.testkit.kubernetes import SERVICE_ACCOUNTS
from paddlewheel.testkit.wait import eventually

NOT_ALLOWED = "(?i)authorization violation"
Making = Callable[[BusAuthStand], Awaitable[str]]


async def is_refused(stand: BusAuthStand, role: str, token: str) -> bool:
    """Any other error is one."""
    try:
        async with stand.enter(role, token):
            return False
    except nats.errors.Error as error:
        if "authorization violation" not in str(error).lower():
            raise
        return True


async def nothing(_: BusAuthStand) -> str:
    return ""


async def malformed(_: BusAuthStand) -> str:
    return "no.token.atall"


async def tampered(stand: BusAuthStand) -> str:
    head, body, signature = (await stand.allow_role(AGENT)).split(".")
    return f"{head}.{body}.{signature[:-8]}AAAAAAAA"


async def of_the_api_server(stand: BusAuthStand) -> str:
    """What every pod that has a token has."""
    await stand.allow_role(AGENT)
    return await stand.token(AGENT, stand.release, audience="")


async def of_another_audience(stand: BusAuthStand) -> str:
    await stand.allow_role(AGENT)
    return await stand.token(AGENT, stand.release, audience="vault")


async def of_another_service(stand: BusAuthStand) -> str:
    return await stand.allow_role("job-controller")


async def of_that_name_in_another_namespace(stand: BusAuthStand) -> str:
    """What an admin of a namespace can make there."""
    await stand.allow_role(AGENT)
    elsewhere = await stand.namespace()
    await stand.account(AGENT, elsewhere)
    return await stand.token(AGENT, elsewhere)


async def of_an_admin_of_another_namespace(stand: BusAuthStand) -> str:
    """With the role of that name, bound where the admin may bind."""
    elsewhere = await stand.namespace()
    await stand.account("admin", elsewhere)
    await stand.allow_role(AGENT)
    rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]
    role = {"metadata": {"name": "everything", "namespace": elsewhere}, "rules": rules}
    await stand.create(RBAC_ROLES, role)
    subject = {"kind": "ServiceAccount", "name": "admin", "namespace": elsewhere}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"}
    await stand.create(
        ROLE_BINDINGS, {"metadata": role["metadata"], "roleRef": reference, "subjects": [subject]}
    )
    return await stand.token("admin", elsewhere)


@pytest.mark.parametrize(
    "make",
    [
        nothing,
        malformed,
        tampered,
        of_the_api_server,
        of_another_audience,
        of_another_service,
        of_that_name_in_another_namespace,
        of_an_admin_of_another_namespace,
    ],
)
async def test_attack_a_token_connects_as_an_agent(stand: BusAuthStand, make: Making) -> None:
    token = await make(stand)

    assert await is_refused(stand, AGENT, token)
    assert not token or token not in stand.log
    assert not token or token not in stand.bus.log


@pytest.mark.long
async def test_a_deleted_accounts_token_is_refused(stand: BusAuthStand) -> None:
    await stand.account("notifier")
    await stand.allow_facts("notifier", where=stand.home)
    token = await stand.token("notifier")
    assert not await is_refused(stand, "subscriber", token)

    await stand.cluster.delete(SERVICE_ACCOUNTS, Key(stand.home, "notifier"))

    # The API server remembers a reviewed token for 10 s.
    async def refused() -> bool:
        return await is_refused(stand, "subscriber", token)

    await eventually(refused, within=60)


async def test_what_is_no_role_is_refused(stand: BusAuthStand) -> None:
    await stand.account("archive")
    await stand.allow_facts("archive")
    token = await stand.token("archive")
    assert not await is_refused(stand, "subscriber", token)

    for role in ("", "nobody", "subscriber.a b", "subscriber.*", "subscriber.>"):
        assert await is_refused(stand, role, token), role


async def test_nobody_but_bus_auth_answers_the_servers_requests(stand: BusAuthStand) -> None:
    token = await stand.allow_role("operator")

    async with stand.enter("operator", token) as operator:
        assert await operator.refused_to_subscribe("$SYS.REQ.USER.AUTH")
        assert await operator.refused_to_publish("$SYS.REQ.USER.AUTH")


@pytest.mark.long
# A server that does not answer leaves nats-py's half-open connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_while_the_api_server_is_away_nobody_is_let_in(own_stand: BusAuthStand, tmp_path: Path) -> None:
    token = await own_stand.allow_role(AGENT)
    await own_stand.stop()
    config = (own_stand.folder / "kubeconfig").read_text()
    (tmp_path / "away").write_text(_with_server(config, "https://127.0.0.1:1"))
    await own_stand.start(KUBECONFIG=str(tmp_path / "away"))

    access = own_stand.access(AGENT, token)
    connection = Connection(access, "agent")
    try:
        with pytest.raises(Retry):
            await connection.client()
        await own_stand.stop()
        await own_stand.start()
        assert (await eventually(lambda: _connected(connection))).is_connected
    finally:
        await connection.close()


# A server that does not answer leaves nats-py's half-open connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_while_bus_auth_is_away_connections_live_on_and_new_ones_wait(own_stand: BusAuthStand) -> None:
    token = await own_stand.allow_role(AGENT)
    access = own_stand.access(AGENT, token)
    old, new = Connection(access, "old"), Connection(access, "new")
    try:
        client = await eventually(lambda: _connected(old))
        await own_stand.stop()
        with pytest.raises(Retry):
            await new.client()
        await client.flush()
        assert client.is_connected
        await own_stand.start()
        assert await eventually(lambda: _connected(new))
        assert old.connected
    finally:
        await old.close()
        await new.close()


@pytest.mark.long
async def test_a_client_is_disconnected_with_its_rights_and_returns_with_a_fresh_token(
    own_stand: BusAuthStand,
) -> None:
    await own_stand.stop()
    await own_stand.start(LIFETIME="5")
    token = await own_stand.allow_role(AGENT)
    access = own_stand.access(AGENT, token)
    connection = Connection(access, "agent")
    try:
        await eventually(lambda: _connected(connection))
        fresh = await own_stand.token(AGENT)
        assert claims_of(fresh)["jti"] != claims_of(token)["jti"]
        Path(access.token_file).write_text(fresh)

        await eventually(lambda: connection.generation > 0, within=60, what="disconnected")

        assert await eventually(lambda: _connected(connection), within=60)
    finally:
        await connection.close()


@pytest.mark.long
async def test_what_was_revoked_ends_with_the_rights_lifetime(own_stand: BusAuthStand) -> None:
    await own_stand.stop()
    await own_stand.start(LIFETIME="5")
    await own_stand.account("archive")
    await own_stand.allow_facts("archive")
    token = await own_stand.token("archive")

    async with own_stand.enter("subscriber", token) as reader:
        await own_stand.cluster.delete(SERVICE_ACCOUNTS, Key(own_stand.home, "archive"))
        await eventually(lambda: reader.client.is_closed, within=60, what="disconnected")


async def _connected(connection: Connection) -> Client | None:
    with suppress(Retry):
        return await connection.client()
    return None


def _with_server(kubeconfig: str, server: str) -> str:
    config = json.loads(kubeconfig)
    config["clusters"][0]["cluster"]["server"] = server
    return json.dumps(config)
