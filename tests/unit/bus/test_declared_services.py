"""Services of others: what a declaration becomes, and which names it cannot have."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import TypeAdapter, ValidationError

from paddlewheel.bus.admin.permissions import INSTALLER, OURS, ROLES, permissions_of
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.admin.services import DeclaredService, DeclaredServices, declared_with
from paddlewheel.bus.streams import STREAMS, StreamSpec
from paddlewheel.core.errors import Permanent

API = "$JS.API"
NOTEBOOKS = {
    "name": "notebooks",
    "publishes": [{"context": "notebooks", "maxBytes": "64Mi", "maxAge": "168h"}],
    "follows": ["jobs"],
}
REPORTS = {"name": "reports", "follows": ["notebooks"]}


def parse(*declared: dict[str, Any]) -> tuple[DeclaredService, ...]:
    return TypeAdapter(DeclaredServices).validate_python(declared)


def test_a_service_has_a_stream_for_each_context_and_a_durable_for_each_that_it_follows() -> None:
    declared = declared_with(parse(NOTEBOOKS, REPORTS))

    assert declared.streams == (
        *STREAMS,
        StreamSpec(
            "PW_NOTEBOOKS",
            ("pw.evt.notebooks.>",),
            max_bytes=64 * 1024**2,
            max_age=7 * 86400,
            live="messages",
            declaration=2,
        ),
    )
    assert declared.facts[-1].name == "PW_NOTEBOOKS"
    added = declared.durables[len(OURS.durables) :]
    assert [(each.stream, each.durable, each.subjects) for each in added] == [
        ("PW_JOBS", "notebooks-jobs", ("pw.evt.jobs.>",)),
        ("PW_NOTEBOOKS", "reports-notebooks", ("pw.evt.notebooks.>",)),
    ]


def test_it_may_publish_its_facts_look_them_up_and_pull_from_its_durables_and_nothing_else() -> None:
    declared = declared_with(parse(NOTEBOOKS, REPORTS))

    may = permissions_of(declared.role("notebooks"), declared)

    assert may.publish == {
        f"{API}.INFO",
        "pw.evt.notebooks.>",
        f"{API}.STREAM.INFO.PW_NOTEBOOKS",
        f"{API}.STREAM.MSG.GET.PW_NOTEBOOKS",
        f"{API}.DIRECT.GET.PW_NOTEBOOKS",
        f"{API}.DIRECT.GET.PW_NOTEBOOKS.>",
        f"{API}.CONSUMER.INFO.PW_JOBS.notebooks-jobs",
        f"{API}.CONSUMER.MSG.NEXT.PW_JOBS.notebooks-jobs",
        "$JS.ACK.PW_JOBS.notebooks-jobs.>",
    }
    assert may.subscribe == {"_INBOX.>", "_INBOX_notebooks.>"}


def test_the_installer_may_make_what_is_declared_and_no_more_than_before_without() -> None:
    installer = OURS.role(INSTALLER)
    more = (
        permissions_of(installer, declared_with(parse(NOTEBOOKS))).publish - permissions_of(installer).publish
    )

    assert f"{API}.STREAM.CREATE.PW_NOTEBOOKS" in more
    assert "pw.install.*.STREAM.CREATE.PW_NOTEBOOKS" in more
    assert f"{API}.CONSUMER.CREATE.PW_JOBS.notebooks-jobs" in more
    assert f"{API}.STREAM.DELETE.PW_NOTEBOOKS" not in more
    assert declared_with(()) == OURS


def test_with_a_token_it_has_the_same_rights_in_its_account_and_is_unknown_where_it_is_not_declared() -> None:
    declared = declared_with(parse(NOTEBOOKS))

    may = permissions_of(declared.role("notebooks"), declared)
    assert rights(Identity("notebooks"), declared) == ("notebooks", may)
    with pytest.raises(Permanent, match="role notebooks is none of"):
        rights(Identity("notebooks"))


def named(name: str) -> list[dict[str, Any]]:
    return [{"name": name}]


def publishing(*contexts: str) -> list[dict[str, Any]]:
    [publication] = cast("list[dict[str, Any]]", NOTEBOOKS["publishes"])
    return [{"name": f"s-{n}", "publishes": [{**publication, "context": c}]} for n, c in enumerate(contexts)]


REFUSED = [
    *((named(role.name), f"the name {role.name} is taken") for role in ROLES),
    *(
        (named(name), f"the name {name} is taken")
        for name in ("bus-auth", "sub", "sub-a", "mirror", "mirror-a", "team-a")
    ),
    ([*named("a"), *named("a")], "the name a is taken"),
    *(
        (publishing(context), f"the context {context} is taken")
        for context in ("jobs", "work", "dlq", "replay")
    ),
    (publishing("a", "a"), "the context a is taken"),
    (
        [{"name": "a", "follows": ["notebooks"]}],
        "a follows notebooks: name one of cache, cacheprogress, datasets",
    ),
    ([{"name": "a", "follows": ["jobs", "jobs"]}], "a follows jobs: name one of"),
    ([{"name": "a", "follows": ["work"]}], "a follows work"),
    *((named(name), "String should match pattern") for name in ("A", "a.b", "a-", ">", "a*")),
    *((publishing(context), "String should match pattern") for context in ("a.b", "a-b", "A", "*", ">")),
    ([{"name": "a", "extra": 1}], "Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("declared", "why"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_taken_or_unknown_is_refused(declared: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parse(*declared)
