"""The permissions of one identity within those of its role."""

from __future__ import annotations

import pytest

from paddlewheel.bus.admin.accounts import HOME, WATCHERS
from paddlewheel.bus.admin.permissions import (
    OURS,
    ROLES,
    SUBSCRIBER,
    Permissions,
    member_of,
    permissions_of,
)
from paddlewheel.bus.admin.rights import Identity, Watch, rights
from paddlewheel.core.errors import Permanent

SERVICES = sorted({role.name for role in ROLES} - {SUBSCRIBER, "operator", "installer"})


@pytest.mark.parametrize("role", SERVICES)
def test_a_service_has_its_roles_rights_in_its_roles_account(role: str) -> None:
    assert rights(Identity(role)) == (role, permissions_of(OURS.role(role)))


@pytest.mark.parametrize("role", ["operator", "installer"])
def test_those_who_make_streams_are_where_the_streams_are(role: str) -> None:
    assert rights(Identity(role))[0] == HOME


def test_a_member_of_a_team_is_in_its_account() -> None:
    assert rights(Identity(SUBSCRIBER, team="vision")) == ("vision", member_of("vision"))


def test_a_watcher_shares_nothing_with_teams_and_no_queue_group_with_other_watchers() -> None:
    heard = "pw.evt.*.*.*.*.a.*"

    assert rights(Identity(SUBSCRIBER, watch=Watch(frozenset({"a"}), ("team", "me")))) == (
        WATCHERS,
        Permissions(subscribe=frozenset({heard, f"{heard} watch.team.me", f"{heard} watch.team.me.>"})),
    )


def test_a_subscriber_of_no_team_that_watches_nothing_has_no_rights() -> None:
    with pytest.raises(Permanent, match="NoFacts"):
        rights(Identity(SUBSCRIBER))


@pytest.mark.parametrize("name", ["", "a.b", ">", "a b", "*"])
def test_no_namespace_and_no_queue_group_widens_a_subject(name: str) -> None:
    with pytest.raises(Permanent):
        Watch(frozenset({name}), ("a", "b"))
    with pytest.raises(Permanent):
        Watch(frozenset({"a"}), ("a", name))
