"""Who gets what, over an API server that is a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from bus_auth.authorize import Authorizer, Policy
from bus_auth.domain.model import Account, Question
from bus_auth.domain.names import AGENT_LABELS, FACTS, POD_NAME, POD_UID, ROLES, SET_LABEL, USE, WATCH
from paddlewheel.bus.admin.accounts import HOME
from paddlewheel.bus.admin.permissions import permissions_of, role_named
from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import NotFound, Permanent, Retry

HOME_NAMESPACE = "paddle-system"
TEAMS = (Team("subscriber"), Team("vision", ("team", "a")))
AGENT = Account(
    "system:serviceaccount:team:default",
    extra={POD_NAME: ("digits-runtime-0",), POD_UID: ("pod-uid",)},
)
NOTIFIER = Account("system:serviceaccount:team:notifier")


@dataclass
class Table:
    """The API server's word."""

    account: Account | Permanent | Retry = NOTIFIER
    allowed: set[Question] = field(default_factory=set)
    pods: dict[Key, dict[str, Any]] = field(default_factory=dict)
    sets: dict[Key, dict[str, Any]] = field(default_factory=dict)
    away: bool = False

    async def review(self, token: str) -> Account:
        if not isinstance(self.account, Account):
            raise self.account
        return self.account

    async def allows(self, account: Account, question: Question) -> bool:
        if self.away:
            raise Retry("Unreachable")
        return question in self.allowed

    async def pod(self, key: Key) -> dict[str, Any]:
        return _found(self.pods, key)

    async def sample_set(self, key: Key) -> dict[str, Any]:
        return _found(self.sets, key)


def _found(objects: dict[Key, dict[str, Any]], key: Key) -> dict[str, Any]:
    if key not in objects:
        raise NotFound(str(key))
    return objects[key]


def with_agent() -> Table:
    labels = {**AGENT_LABELS, SET_LABEL: "digits"}
    return Table(
        AGENT,
        pods={Key("team", "digits-runtime-0"): {"metadata": {"uid": "pod-uid", "labels": labels}}},
        sets={Key("team", "digits"): {"metadata": {"uid": "set-uid"}}},
    )


async def granted(table: Table, role: str) -> Grant:
    policy = Policy(HOME_NAMESPACE, lifetime=1800, teams=TEAMS, spread=lambda: 0.0)
    return await Authorizer(table, policy, ManualClock()).authorize(Asking(role, "token"))


async def test_an_agent_gets_its_own_set_and_nothing_of_others() -> None:
    grant = await granted(with_agent(), "cache-runtime")

    data = {s for s in grant.permissions.publish if not s.startswith("$JS.")}
    assert grant.account == "cache-runtime"
    assert data
    assert all("set-uid" in subject.split(".") for subject in data)
    assert f"{agent_inbox('set-uid')}.>" in grant.permissions.subscribe
    assert all("set-uid" in subject.split(".") for subject in grant.permissions.subscribe)
    assert "$KV.pw_cache_runs.*.*.spec" in grant.permissions.publish_denied


@pytest.mark.parametrize("missing", ["pods", "sets"])
async def test_without_its_pod_or_its_set_it_gets_nothing(missing: str) -> None:
    table = with_agent()
    getattr(table, missing).clear()

    with pytest.raises(Permanent, match="NotAnAgent"):
        await granted(table, "cache-runtime")


@pytest.mark.parametrize("role", ["job-controller", "evaluator"])
async def test_a_role_is_granted_in_the_releases_namespace(role: str) -> None:
    table = Table(allowed={Question(USE, ROLES, HOME_NAMESPACE, role)})

    grant = await granted(table, role)

    assert (grant.account, grant.permissions) == (role, permissions_of(role_named(role)))


async def test_an_operator_is_where_the_streams_are() -> None:
    table = Table(allowed={Question(USE, ROLES, HOME_NAMESPACE, "operator")})

    assert (await granted(table, "operator")).account == HOME


@pytest.mark.parametrize(
    "allowed",
    [
        set(),
        {Question(USE, ROLES, "team", "operator")},
        {Question(USE, ROLES, HOME_NAMESPACE, "evaluator")},
        {Question(WATCH, FACTS, "")},
    ],
)
async def test_other_grants_make_no_operator(allowed: set[Question]) -> None:
    with pytest.raises(Permanent, match=r"NotPermitted.*busroles\.events\.paddlepaddle\.org operator"):
        await granted(Table(allowed=allowed), "operator")


async def test_a_subscriber_gets_all_facts_or_those_of_its_own_namespace() -> None:
    everywhere, own = Question(WATCH, FACTS, ""), Question(WATCH, FACTS, "team")

    assert "pw.evt.>" in (await granted(Table(allowed={everywhere}), "subscriber")).permissions.subscribe
    narrow = (await granted(Table(allowed={own}), "subscriber")).permissions
    assert narrow.subscribe == {"pw.evt.*.*.*.*.team.*"}
    assert narrow.publish == frozenset()


async def test_every_namespace_that_is_asked_for_must_be_granted() -> None:
    table = Table(allowed={Question(WATCH, FACTS, "a"), Question(WATCH, FACTS, "b")})

    assert len((await granted(table, "subscriber.a.b")).permissions.subscribe) == 2
    with pytest.raises(Permanent, match=r"may not watch facts\S* in namespace c"):
        await granted(table, "subscriber.a.c")


async def test_a_team_is_open_to_whoever_may_watch_all_its_namespaces() -> None:
    own, other, third = (Question(WATCH, FACTS, namespace) for namespace in ("team", "a", "c"))

    grant = await granted(Table(allowed={own, other}), "vision")
    assert (grant.account, grant.permissions) == ("vision", permissions_of(role_named("subscriber")))
    narrow = await granted(Table(allowed={own}), "vision")
    assert narrow.account == "vision"
    assert narrow.permissions.subscribe == {"pw.evt.*.*.*.*.team.*"}
    with pytest.raises(Permanent, match="team vision gets no facts of c"):
        await granted(Table(allowed={third}), "vision.c")
    with pytest.raises(Permanent, match="NotPermitted"):
        await granted(Table(allowed={third}), "vision")


async def test_a_person_has_no_namespace_of_its_own() -> None:
    with pytest.raises(Permanent, match="NotPermitted"):
        await granted(Table(Account("jane"), allowed={Question(WATCH, FACTS, "team")}), "subscriber")


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
