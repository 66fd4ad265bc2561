"""What clients ask for, and what the API server's answers about their tokens mean."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bus_auth.domain.accounts import (
    MAX_TOKEN,
    check_token,
    namespace_of,
    pod_of,
    queue_of,
    read_review,
    read_wish,
    rights_end,
)
from bus_auth.domain.agents import set_of
from bus_auth.domain.model import Account, BoundPod, Shown, Wish
from bus_auth.domain.names import AGENT_LABELS, POD_NAME, POD_UID, SET_ANNOTATION, SET_LABEL
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent

POD = BoundPod(Key("team", "digits-runtime-0"), "pod-uid")
AUDIENCE = "paddlewheel-bus"
SHOWN = Shown((AUDIENCE,), 1000)


def make_token(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.signature"


def reviewed(**changes: Any) -> dict[str, Any]:
    user = {
        "username": "system:serviceaccount:team:default",
        "uid": "u",
        "groups": ["system:serviceaccounts"],
        "extra": {POD_NAME: ["digits-runtime-0"], POD_UID: ["pod-uid"]},
    }
    return {"authenticated": True, "audiences": ["paddlewheel-bus"], "user": user, **changes}


@pytest.mark.parametrize(
    ("user", "wish"),
    [
        ("operator", Wish("operator")),
        ("subscriber", Wish("subscriber")),
        ("subscriber.a.b", Wish("subscriber", ("a", "b"))),
        ("subscriber.a.b.a", Wish("subscriber", ("a", "b"))),
        ("subscriber" + ".a" * 65, Wish("subscriber", ("a",))),
    ],
)
def test_a_user_name_says_what_is_asked_for(user: str, wish: Wish) -> None:
    assert read_wish(user) == wish


MANY = ".".join(f"n{number}" for number in range(17))


@pytest.mark.parametrize(
    "user", ["", ".a", "subscriber.", "subscriber.*", "subscriber.>", f"subscriber.{MANY}"]
)
def test_other_user_names_are_refused(user: str) -> None:
    with pytest.raises(Permanent):
        read_wish(user)


@pytest.mark.parametrize("audiences", [AUDIENCE, [AUDIENCE, "vault"]])
def test_a_token_says_for_whom_it_is_and_until_when(audiences: object) -> None:
    shown = check_token(make_token(aud=audiences, exp=1000), AUDIENCE, 999)

    assert AUDIENCE in shown.audiences
    assert shown.expires == 1000


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "no token"),
        ("x" * (MAX_TOKEN + 1), "more than"),
        ("opaque", "no token of a service account"),
        ("a.b.c", "no token of a service account"),
        ("a.e30", "no token of a service account"),
        (make_token(), "no token of a service account"),
        (make_token(aud=[AUDIENCE]), "no token of a service account"),
        (make_token(aud=[AUDIENCE], exp="soon"), "no token of a service account"),
        (make_token(aud=7, exp=2000), "no token of a service account"),
        (make_token(aud=["vault"], exp=2000), "audience"),
        (make_token(aud=[], exp=2000), "audience"),
        (make_token(aud=[AUDIENCE], exp=1000), "expired 0 s ago"),
    ],
)
def test_the_api_server_is_not_asked_about_what_cannot_be_valid(token: str, why: str) -> None:
    with pytest.raises(Permanent, match=f"NotAuthenticated.*{why}"):
        check_token(token, AUDIENCE, 1000)


def test_a_review_tells_who_it_is_and_until_when() -> None:
    account = read_review(reviewed(), SHOWN, AUDIENCE)

    assert account.user == "system:serviceaccount:team:default"
    assert account.groups == ("system:serviceaccounts",)
    assert account.expires == 1000
    assert namespace_of(account) == "team"
    assert pod_of(account) == POD


def test_an_accounts_queue_groups_are_nobody_elses() -> None:
    users = (
        "system:serviceaccount:team:a",
        "system:serviceaccount:team:a.b",
        "system:serviceaccount:team-a:b",
    )
    groups = {queue_of(Account(user, 0)) for user in (*users, "jane", "jane *", "system:serviceaccounts")}

    assert len(groups) == 6
    assert {("team", "a"), ("team", "a_b"), ("team-a", "b")} <= groups
    assert {len(group) for group in groups} == {2}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"error": "expired"},
        reviewed(authenticated=False),
        reviewed(audiences=[]),
        reviewed(audiences=None),
        reviewed(audiences=["https://kubernetes.default.svc"]),
    ],
)
def test_a_token_that_the_api_server_does_not_vouch_for_is_refused(status: dict[str, Any]) -> None:
    with pytest.raises(Permanent, match="NotAuthenticated"):
        read_review(status, SHOWN, AUDIENCE)


@pytest.mark.parametrize(
    "account",
    [
        Account("system:serviceaccount:team:default", 0),
        Account("jane", 0, extra={POD_NAME: ("p",), POD_UID: ("u",)}),
        Account("system:serviceaccount:team:default", 0, extra={POD_NAME: ("p",)}),
        Account("system:serviceaccount:team:default", 0, extra={POD_NAME: ("p", "q"), POD_UID: ("u", "v")}),
    ],
)
def test_a_token_that_is_bound_to_no_pod_is_no_agents(account: Account) -> None:
    with pytest.raises(Permanent, match="NotAnAgent"):
        pod_of(account)


@pytest.mark.parametrize(
    ("expires", "spread", "end"),
    [(9999, 0.0, 2800), (9999, 1.0, 2440), (1500, 0.0, 1500), (9999, 0.5, 2620), (900, 0.0, 900)],
)
def test_rights_end_with_the_token_at_the_latest(expires: int, spread: float, end: int) -> None:
    assert rights_end(Account("a", expires), 1000, 1800, spread) == end


def pod(uid: str = "pod-uid", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "digits-runtime-0", "uid": uid, "labels": labels}}


AGENT = {**AGENT_LABELS, SET_LABEL: "digits"}


def test_an_agents_set_is_in_its_own_namespace() -> None:
    assert set_of(POD, pod(**AGENT), "home") == Key("team", "digits")


@pytest.mark.parametrize(
    ("home", "expected"), [("team", Key("other", "images")), ("home", Key("team", "digits"))]
)
def test_only_a_pod_of_the_release_is_the_agent_of_a_set_elsewhere(home: str, expected: Key) -> None:
    found = pod(**AGENT)
    found["metadata"]["annotations"] = {SET_ANNOTATION: "other/images"}
    assert set_of(POD, found, home) == expected


@pytest.mark.parametrize(
    "found",
    [
        pod("another", **AGENT),
        pod(),
        pod(**AGENT_LABELS),
        pod(**{SET_LABEL: "digits"}),
        pod(**{**AGENT, "app.kubernetes.io/component": "notebook"}),
        pod(**{**AGENT, "app.kubernetes.io/managed-by": "somebody"}),
    ],
)
def test_other_pods_have_none(found: dict[str, Any]) -> None:
    with pytest.raises(Permanent, match="NotAnAgent"):
        set_of(POD, found, "home")
