"""What one identity may do, of all that its role may."""

from __future__ import annotations

import pytest

from paddlewheel.bus.admin.accounts import HOME, WATCHERS
from paddlewheel.bus.admin.permissions import (
    AGENT,
    ROLES,
    SUBSCRIBER,
    Permissions,
    member_of,
    permissions_of,
    role_named,
)
from paddlewheel.bus.admin.rights import Identity, SetReference, Watch, agent_inbox, rights, within_set
from paddlewheel.bus.streams import overlaps
from paddlewheel.core.errors import Permanent

MINE, THEIRS = SetReference("team-a", "uid-a"), SetReference("team-b", "uid-b")
CHUNKS, OWN_CHUNKS = "pw.work.cache.*.*.*.*.v1", "pw.work.cache.uid-a.*.*.*.v1"
SERVICES = sorted({role.name for role in ROLES} - {AGENT, SUBSCRIBER, "operator", "installer"})


def data_of(may: Permissions) -> set[str]:
    return {s for s in may.publish if not s.startswith("$JS.")} | set(may.subscribe)


def test_two_sets_agents_share_no_subject_that_carries_data() -> None:
    mine, theirs = (data_of(within_set(permissions_of(role_named(AGENT)), each)) for each in (MINE, THEIRS))

    shared = {(a, b) for a in mine for b in theirs if overlaps(a, b)}
    assert mine
    assert shared == set()


def test_an_agent_may_nothing_that_its_role_may_not() -> None:
    role, may = permissions_of(role_named(AGENT)), within_set(permissions_of(role_named(AGENT)), MINE)

    assert not [s for s in may.publish if not any(_covers(whole, s) for whole in role.publish)]
    assert not [s for s in may.subscribe if not any(_covers(whole, s) for whole in role.subscribe)]
    assert may.publish_denied >= role.publish_denied


def _covers(whole: str, part: str) -> bool:
    """Every subject of `part` is one of `whole`."""
    tokens, others = whole.split("."), part.split(".")
    for index, each in enumerate(tokens):
        if each == ">":
            return len(others) > index
        if index >= len(others) or others[index] == ">" or (each != "*" and each != others[index]):
            return False
    return len(tokens) == len(others)


def test_no_request_of_an_agents_has_what_it_reads_in_its_body() -> None:
    asked = {s for s in within_set(permissions_of(role_named(AGENT)), MINE).publish if s.startswith("$JS.")}

    assert asked == {"$JS.API.INFO", "$JS.API.DIRECT.GET.PW_WORK.pw.work.cache.uid-a.*.*.*.v1"}


def test_signals_of_what_is_stored_are_those_of_the_set() -> None:
    may = Permissions(
        subscribe=frozenset({"pw.live.KV_pw_cache_runs.>", "pw.live.PW_JOBS.>", "_INBOX_cache-runtime.>"})
    )

    assert within_set(may, MINE).subscribe == {
        "pw.live.KV_pw_cache_runs.uid-a.>",
        f"{agent_inbox('uid-a')}.>",
    }


@pytest.mark.parametrize(
    ("subject", "narrowed"),
    [
        (f"$JS.API.DIRECT.GET.PW_WORK.{CHUNKS}", {f"$JS.API.DIRECT.GET.PW_WORK.{OWN_CHUNKS}"}),
        ("pw.feeds.purge.v1.*", {"pw.feeds.purge.v1.uid-a"}),
        # What fills streams of all sets.
        (CHUNKS, set()),
        ("$KV.pw_cache_nodes.*.*", set()),
        ("$KV.pw_cache_runs.*.*.*", set()),
        (f"pw.write.*.{CHUNKS}", {f"pw.write.uid-a.{OWN_CHUNKS}"}),
        ("pw.write.*.$KV.pw_cache_nodes.*.*", {"pw.write.uid-a.$KV.pw_cache_nodes.uid-a.*"}),
        ("pw.write.*.$KV.pw_cache_runs.*.*.*", {"pw.write.uid-a.$KV.pw_cache_runs.uid-a.*.*"}),
        (
            "pw.evt.cache.>",
            {
                f"pw.evt.cache.{fact}.v1.team-a.uid-a"
                for fact in ("run.started", "run.ended", "node.mounted", "node.unmounted")
            },
        ),
        ("pw.evt.cacheprogress.>", {"pw.evt.cacheprogress.run.progressed.v1.team-a.uid-a"}),
        ("$JS.API.INFO", {"$JS.API.INFO"}),
        ("pw.read.*.DIRECT.GET.KV_pw_cache_runs", {"pw.read.uid-a.DIRECT.GET.KV_pw_cache_runs"}),
        ("$JS.API.DIRECT.GET.KV_pw_cache_runs", set()),
        ("$JS.API.DIRECT.GET.KV_pw_cache_runs.>", set()),
        ("$JS.API.STREAM.MSG.GET.PW_CACHE", set()),
        ("$JS.API.STREAM.INFO.KV_pw_cache_nodes", set()),
        # What some later release may add.
        ("$JS.API.CONSUMER.LIST.PW_CACHE", set()),
    ],
)
def test_what_carries_data_is_narrowed_to_the_set(subject: str, narrowed: set[str]) -> None:
    assert within_set(Permissions(publish=frozenset({subject})), MINE).publish == narrowed


@pytest.mark.parametrize("uid", ["", "a.b", "*", ">", "a b"])
def test_no_set_widens_a_subject(uid: str) -> None:
    with pytest.raises(Permanent):
        SetReference("team-a", uid)


def test_an_agent_without_a_set_has_no_rights() -> None:
    with pytest.raises(Permanent, match="NoDataSet"):
        rights(Identity(AGENT))


@pytest.mark.parametrize("role", SERVICES)
def test_a_service_has_its_roles_rights_in_its_roles_account(role: str) -> None:
    assert rights(Identity(role)) == (role, permissions_of(role_named(role)))


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
