"""Reading the user names and tokens of clients, and the API server's reviews."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bus_auth.domain.accounts import (
    MAX_TOKEN,
    check_token,
    namespace_of,
    queue_of,
    read_requested_role,
    read_review,
    rights_end,
)
from bus_auth.domain.model import Account, RequestedRole, TokenClaims
from paddlewheel.contracts.bus_tokens import AUDIENCE
from paddlewheel.core.errors import Permanent

CLAIMS = TokenClaims((AUDIENCE,), 1000)


def make_token(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.signature"


def reviewed(**changes: Any) -> dict[str, Any]:
    user = {
        "username": "system:serviceaccount:team:default",
        "uid": "u",
        "groups": ["system:serviceaccounts"],
        "extra": {"authentication.kubernetes.io/pod-name": ["digits-runtime-0"]},
    }
    return {"authenticated": True, "audiences": ["paddlewheel-bus"], "user": user, **changes}


@pytest.mark.parametrize(
    ("user", "requested"),
    [
        ("operator", RequestedRole("operator")),
        ("subscriber", RequestedRole("subscriber")),
        ("subscriber.a.b", RequestedRole("subscriber", ("a", "b"))),
        ("subscriber.a.b.a", RequestedRole("subscriber", ("a", "b"))),
        ("subscriber" + ".a" * 65, RequestedRole("subscriber", ("a",))),
    ],
)
def test_a_user_name_says_what_is_asked_for(user: str, requested: RequestedRole) -> None:
    assert read_requested_role(user) == requested


MANY = ".".join(f"n{number}" for number in range(17))


@pytest.mark.parametrize(
    "user", ["", ".a", "subscriber.", "subscriber.*", "subscriber.>", f"subscriber.{MANY}"]
)
def test_other_user_names_are_refused(user: str) -> None:
    with pytest.raises(Permanent):
        read_requested_role(user)


@pytest.mark.parametrize("audiences", [AUDIENCE, [AUDIENCE, "vault"]])
def test_a_token_says_for_whom_it_is_and_until_when(audiences: object) -> None:
    claims = check_token(make_token(aud=audiences, exp=1000), 999)

    assert AUDIENCE in claims.audiences
    assert claims.expires == 1000


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "no token"),
        ("x" * (MAX_TOKEN + 1), "more than"),
        ("opaque", "not a service-account token"),
        ("a.b.c", "not a service-account token"),
        ("a.e30", "not a service-account token"),
        (make_token(), "not a service-account token"),
        (make_token(aud=[AUDIENCE]), "not a service-account token"),
        (make_token(aud=[AUDIENCE], exp="soon"), "not a service-account token"),
        (make_token(aud=7, exp=2000), "not a service-account token"),
        (make_token(aud=["vault"], exp=2000), "audience"),
        (make_token(aud=[], exp=2000), "audience"),
        (make_token(aud=[AUDIENCE], exp=1000), "expired 0 s ago"),
    ],
)
def test_the_api_server_is_not_asked_about_what_cannot_be_valid(token: str, why: str) -> None:
    with pytest.raises(Permanent, match=f"NotAuthenticated.*{why}"):
        check_token(token, 1000)


def test_a_review_tells_who_it_is_and_until_when() -> None:
    account = read_review(reviewed(), CLAIMS)

    assert account.user == "system:serviceaccount:team:default"
    assert account.groups == ("system:serviceaccounts",)
    assert account.expires == 1000
    assert namespace_of(account) == "team"


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
        read_review(status, CLAIMS)


@pytest.mark.parametrize(
    ("expires", "spread", "end"),
    [(9999, 0.0, 2800), (9999, 1.0, 2440), (1500, 0.0, 1500), (9999, 0.5, 2620), (900, 0.0, 900)],
)
def test_rights_end_with_the_token_at_the_latest(expires: int, spread: float, end: int) -> None:
    assert rights_end(Account("a", expires), 1000, 1800, spread) == end
