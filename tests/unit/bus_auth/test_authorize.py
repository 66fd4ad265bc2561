"""Authorization over an API server that is a table."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

import pytest

from bus_auth.authorize import Authorizer, Policy
from bus_auth.domain.model import Account, ResourceAttributes, TokenClaims
from bus_auth.domain.names import FACTS, ROLES, TEAMS, USE, WATCH
from paddlewheel.bus.admin.accounts import HOME, WATCHERS
from paddlewheel.bus.admin.permissions import OURS, member_of, permissions_of
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.contracts.bus_tokens import AUDIENCE
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.clock import ManualClock

HOME_NAMESPACE = "paddle-system"
SUBSCRIBING = (Team("subscriber"), Team("vision", ("team", "a")))
NOW = int(ManualClock().now().timestamp())
NOTIFIER = Account("system:serviceaccount:team:notifier", NOW + 3600)
EVERYWHERE, OWN, OTHER = (ResourceAttributes(WATCH, FACTS, namespace) for namespace in ("", "team", "a"))
MEMBER = {name: ResourceAttributes(USE, TEAMS, HOME_NAMESPACE, name) for name in ("subscriber", "vision")}
LIVE = "pw.evt.*.*.*.*.{}.*"


@dataclass
class Table:
    """The API server's word."""

    account: Account | Permanent | Retry = NOTIFIER
    allowed: set[ResourceAttributes] = field(default_factory=set)
    away: bool = False
    reviews: int = 0

    async def review(self, token: str, claims: TokenClaims) -> Account:
        self.reviews += 1
        if not isinstance(self.account, Account):
            raise self.account
        return self.account

    async def allows(self, account: Account, attributes: ResourceAttributes) -> bool:
        if self.away:
            raise Retry("Unreachable")
        return attributes in self.allowed


def make_token(**claims: object) -> str:
    """A token for the audience and one hour, unless `claims` have other values."""
    body = json.dumps({"aud": [AUDIENCE], "exp": NOW + 3600, **claims}).encode()
    return f"head.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.signature"


async def granted(table: Table, role: str, token: str = "") -> Grant:
    policy = Policy(HOME_NAMESPACE, lifetime=1800, teams=SUBSCRIBING, spread=lambda: 0.0)
    return await Authorizer(table, policy, ManualClock()).authorize(Login(role, token or make_token()))


@pytest.mark.parametrize("role", ["job-controller", "cache-runtime", "evaluator"])
async def test_a_role_is_granted_in_the_releases_namespace(role: str) -> None:
    table = Table(allowed={ResourceAttributes(USE, ROLES, HOME_NAMESPACE, role)})

    grant = await granted(table, role)

    assert (grant.account, grant.permissions) == (role, permissions_of(OURS.role(role)))


@pytest.mark.parametrize("role", ["job-controller", "cache-runtime", "operator"])
async def test_the_account_of_the_releases_namespace_has_the_role_of_its_name(role: str) -> None:
    account = Account(f"system:serviceaccount:{HOME_NAMESPACE}:{role}", NOW + 60)

    assert (await granted(Table(account), role)).permissions == permissions_of(OURS.role(role))
    with pytest.raises(Permanent, match="NotPermitted"):
        await granted(Table(account), "evaluator")


@pytest.mark.parametrize(
    "user",
    [
        "system:serviceaccount:team:cache-runtime",
        f"system:serviceaccount:{HOME_NAMESPACE}:default",
        f"system:serviceaccount:{HOME_NAMESPACE}-2:cache-runtime",
        "cache-runtime",
    ],
)
async def test_attack_an_account_of_that_name_elsewhere_is_no_agent(user: str) -> None:
    with pytest.raises(Permanent, match="NotPermitted"):
        await granted(Table(Account(user, NOW + 60)), "cache-runtime")


async def test_the_account_subscriber_of_the_releases_namespace_is_in_its_team() -> None:
    account = Account(f"system:serviceaccount:{HOME_NAMESPACE}:subscriber", NOW + 60)

    assert (await granted(Table(account, allowed={EVERYWHERE}), "subscriber")).account == "subscriber"


async def test_an_operator_is_where_the_streams_are() -> None:
    table = Table(allowed={ResourceAttributes(USE, ROLES, HOME_NAMESPACE, "operator")})

    assert (await granted(table, "operator")).account == HOME


@pytest.mark.parametrize(
    "allowed",
    [
        set(),
        {ResourceAttributes(USE, ROLES, "team", "operator")},
        {ResourceAttributes(USE, ROLES, HOME_NAMESPACE, "evaluator")},
        {ResourceAttributes(WATCH, FACTS, "")},
    ],
)
async def test_other_grants_make_no_operator(allowed: set[ResourceAttributes]) -> None:
    with pytest.raises(Permanent, match=r"NotPermitted.*busroles\.events\.paddlepaddle\.org operator"):
        await granted(Table(allowed=allowed), "operator")


@pytest.mark.parametrize(("team", "watched"), [("subscriber", {EVERYWHERE}), ("vision", {OWN, OTHER})])
async def test_a_member_of_a_team_that_may_watch_its_namespaces_is_in_its_account(
    team: str, watched: set[ResourceAttributes]
) -> None:
    grant = await granted(Table(allowed={MEMBER[team], *watched}), team)

    assert (grant.account, grant.permissions) == (team, member_of(team))


@pytest.mark.parametrize(
    "allowed",
    [
        {OWN, OTHER},
        {EVERYWHERE, OWN, OTHER},
        {OWN, OTHER, MEMBER["subscriber"]},
        {OWN, OTHER, ResourceAttributes(USE, TEAMS, "team", "vision")},
        {OWN, OTHER, ResourceAttributes(USE, ROLES, HOME_NAMESPACE, "vision")},
        {MEMBER["vision"], OWN},
        {MEMBER["vision"]},
    ],
)
async def test_attack_nobody_else_enters_a_teams_account(allowed: set[ResourceAttributes]) -> None:
    with pytest.raises(Permanent, match="NotPermitted"):
        await granted(Table(allowed=allowed), "vision")
    assert (await granted(Table(allowed={*allowed, OWN}), "subscriber")).account == WATCHERS


async def test_whoever_is_of_no_team_hears_its_own_namespace_and_shares_no_queue_group() -> None:
    grant = await granted(Table(allowed={OWN}), "subscriber")

    own = LIVE.format("team")
    assert grant.account == WATCHERS
    assert grant.permissions.subscribe == {own, f"{own} watch.team.notifier", f"{own} watch.team.notifier.>"}
    assert grant.permissions.publish == frozenset()


async def test_every_namespace_that_is_asked_for_must_be_granted() -> None:
    table = Table(allowed={OTHER, ResourceAttributes(WATCH, FACTS, "b"), MEMBER["subscriber"], EVERYWHERE})

    heard = {
        subject.partition(" ")[0]
        for subject in (await granted(table, "subscriber.a.b")).permissions.subscribe
    }
    assert heard == {LIVE.format("a"), LIVE.format("b")}
    with pytest.raises(Permanent, match=r"may not watch facts\S* in namespace c"):
        await granted(table, "subscriber.a.c")


async def test_a_team_has_its_namespaces_and_its_members_choose_none() -> None:
    with pytest.raises(Permanent, match=r"UnknownRole.*subscriber\.<namespace>"):
        await granted(Table(allowed={MEMBER["vision"], OWN, OTHER}), "vision.a")


async def test_a_person_has_no_namespace_of_its_own() -> None:
    table = Table(Account("jane", NOW + 60), allowed={EVERYWHERE, OWN})

    with pytest.raises(Permanent, match=r"NotPermitted.*subscriber\.<namespace>"):
        await granted(table, "subscriber")
    assert (await granted(table, "subscriber.team")).account == WATCHERS


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b.c",
        make_token(aud=["https://kubernetes.default.svc"]),
        make_token(exp=NOW),
        make_token(padding="x" * 5000),
    ],
)
async def test_attack_what_cannot_be_valid_costs_the_api_server_nothing(token: str) -> None:
    table = Table()

    with pytest.raises(Permanent, match="NotAuthenticated"):
        await granted(table, "subscriber", token)
    assert table.reviews == 0


@pytest.mark.parametrize(
    "role", ["", "nobody", "SYS", "operator.a", "cache-runtime.team", "BUS_AUTH", "PADDLEWHEEL"]
)
async def test_an_account_of_the_server_is_no_role(role: str) -> None:
    with pytest.raises(Permanent, match="UnknownRole"):
        await granted(Table(), role)


@pytest.mark.parametrize("error", [Permanent("NotAuthenticated", "no"), Retry("Unreachable")])
async def test_whoever_is_not_known_gets_nothing(error: Permanent | Retry) -> None:
    with pytest.raises(type(error)):
        await granted(Table(error), "subscriber")


async def test_what_cannot_be_asked_is_not_allowed() -> None:
    with pytest.raises(Retry):
        await granted(Table(away=True), "subscriber")
