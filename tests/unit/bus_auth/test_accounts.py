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
    read_review,
    read_wish,
    rights_end,
)
from bus_auth.domain.agents import set_of
from bus_auth.domain.model import Account, BoundPod, Wish
from bus_auth.domain.names import AGENT_LABELS, POD_NAME, POD_UID, SET_LABEL
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent

POD = BoundPod(Key("team", "digits-runtime-0"), "pod-uid")


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
    ],
)
def test_a_user_name_says_what_is_asked_for(user: str, wish: Wish) -> None:
    assert read_wish(user) == wish


@pytest.mark.parametrize("user", ["", ".a", "subscriber.", "subscriber.*", "subscriber.>", "s" + ".a" * 65])
def test_other_user_names_are_refused(user: str) -> None:
    with pytest.raises(Permanent):
        read_wish(user)


@pytest.mark.parametrize("token", ["", "x" * (MAX_TOKEN + 1)])
def test_the_api_server_is_not_asked_about_no_token_or_an_enormous_one(token: str) -> None:
    with pytest.raises(Permanent, match="NotAuthenticated"):
        check_token(token)


def test_a_review_tells_who_it_is_and_until_when() -> None:
    account = read_review(reviewed(), make_token(exp=1000), "paddlewheel-bus")

    assert account.user == "system:serviceaccount:team:default"
    assert account.groups == ("system:serviceaccounts",)
    assert account.expires == 1000
    assert namespace_of(account) == "team"
    assert pod_of(account) == POD


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
        read_review(status, make_token(exp=1), "paddlewheel-bus")


@pytest.mark.parametrize("token", ["opaque", "a.b.c", make_token(), make_token(exp="soon"), "a.e30"])
def test_the_end_of_other_tokens_is_not_known(token: str) -> None:
    assert read_review(reviewed(), token, "paddlewheel-bus").expires is None


@pytest.mark.parametrize(
    "account",
    [
        Account("system:serviceaccount:team:default"),
        Account("jane", extra={POD_NAME: ("p",), POD_UID: ("u",)}),
        Account("system:serviceaccount:team:default", extra={POD_NAME: ("p",)}),
        Account("system:serviceaccount:team:default", extra={POD_NAME: ("p", "q"), POD_UID: ("u", "v")}),
    ],
)
def test_a_token_that_is_bound_to_no_pod_is_no_agents(account: Account) -> None:
    with pytest.raises(Permanent, match="NotAnAgent"):
        pod_of(account)


@pytest.mark.parametrize(
    ("expires", "spread", "end"),
    [(None, 0.0, 2800), (None, 1.0, 2440), (1500, 0.0, 1500), (9999, 0.5, 2620), (900, 0.0, 900)],
)
def test_rights_end_with_the_token_at_the_latest(expires: int | None, spread: float, end: int) -> None:
    assert rights_end(Account("a", expires=expires), 1000, 1800, spread) == end


def pod(uid: str = "pod-uid", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "digits-runtime-0", "uid": uid, "labels": labels}}


AGENT = {**AGENT_LABELS, SET_LABEL: "digits"}


def test_an_agents_set_is_in_its_own_namespace() -> None:
    assert set_of(POD, pod(**AGENT)) == Key("team", "digits")


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
        set_of(POD, found)
