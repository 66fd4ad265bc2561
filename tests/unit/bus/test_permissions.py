"""The permissions of the table of roles, and the server's accounts that follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.bus.admin.accounts import (
    AUTH,
    HOME,
    RESIDENTS,
    SYSTEM,
    TEAM,
    WATCHERS,
    Config,
    server_accounts,
    team_template,
)
from paddlewheel.bus.admin.accounts_gen import main
from paddlewheel.bus.admin.permissions import (
    EVALUATOR,
    FACTS,
    OURS,
    ROLES,
    SUBSCRIBER,
    permissions_of,
)
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.admin.teams import within
from paddlewheel.bus.streams import overlaps
from paddlewheel.core.errors import Permanent

GUESTS = [role.name for role in ROLES if role.name not in (*RESIDENTS, SUBSCRIBER)]


def test_each_fact_stream_has_exactly_one_publishing_role() -> None:
    allowed = {name: permissions_of(OURS.role(name)).publish for name in GUESTS}
    tellers = {
        stream.name: [
            name for name in GUESTS if any(overlaps(stream.subjects[0], subject) for subject in allowed[name])
        ]
        for stream in FACTS
    }

    assert {name: len(roles) for name, roles in tellers.items()} == dict.fromkeys(tellers, 1)
    assert tellers["PW_MEASUREMENTS"] == [EVALUATOR]


def test_a_subscriber_publishes_nothing_but_requests_to_its_own_jetstream() -> None:
    subjects = permissions_of(OURS.role(SUBSCRIBER)).publish

    assert all(subject.startswith("$JS.") for subject in subjects)
    changes = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE")
    assert not [s for s in subjects if s.startswith("$JS.API.STREAM.") and s.split(".")[3] in changes]


def test_an_evaluator_publishes_its_one_fact_and_reads_nothing() -> None:
    may = permissions_of(OURS.role(EVALUATOR))

    assert may.publish == {"pw.evt.measurements.revision.measured.v1.*.*", "$JS.API.INFO"}
    assert may.subscribe == {"_INBOX_evaluator.>"}


def test_an_agent_makes_deletes_and_updates_no_stream() -> None:
    subjects = permissions_of(OURS.role("cache-runtime")).publish

    assert not [
        s
        for s in subjects
        if s.startswith("$JS.API.STREAM.") and s.split(".")[3] in ("CREATE", "UPDATE", "DELETE")
    ]
    assert not [s for s in subjects if "PW_JOBS" in s or "PW_DATASETS" in s]


def test_only_operators_and_the_installer_share_the_streams_account() -> None:
    accounts = server_accounts()

    assert {rights(Identity(name))[0] for name in RESIDENTS} == {HOME}
    assert set(accounts) == {HOME, SYSTEM, WATCHERS, AUTH, *GUESTS}
    assert accounts[SYSTEM] == {}


def test_watchers_hear_every_fact_and_reach_nothing() -> None:
    accounts = server_accounts()

    assert set(accounts[WATCHERS]) == {"imports"}
    heard = {each["stream"]["subject"] for each in accounts[WATCHERS]["imports"]}
    assert heard == {each["subject"] for each in team_template()["live"]}


@pytest.mark.parametrize("name", GUESTS)
def test_a_role_reaches_exactly_what_it_may_publish(name: str) -> None:
    accounts = server_accounts()
    imported = services_of(accounts[name])
    exported = {
        (HOME, each["service"])
        for each in accounts[HOME]["exports"]
        if name in each["accounts"] and "service" in each
    }

    assert imported == exported
    assert {subject for _, subject in imported} == permissions_of(OURS.role(name)).publish


def services_of(account: Config) -> set[tuple[str, str]]:
    """Its imported services: the account and the subject."""
    found = (each["service"] for each in account["imports"] if "service" in each)
    return {(each["account"], each["subject"]) for each in found}


def test_the_server_forgets_soon_whom_a_request_is_to_be_answered_to() -> None:
    """Two minutes of the requests of one agent would fill its memory; a pull may wait longer."""
    asked = [each for each in server_accounts()[HOME]["exports"] if "service" in each]
    kept = [each["service"] for each in asked if each.get("response_threshold") != "10s"]
    assert all(each.startswith("$JS.API.CONSUMER.MSG.NEXT.") for each in kept)


def test_bus_auth_shares_no_subject_with_other_accounts() -> None:
    assert server_accounts()[AUTH] == {}


def test_a_batch_has_many_answers() -> None:
    batches = [e for e in server_accounts()[HOME]["exports"] if ".DIRECT.GET." in e.get("service", "")]

    assert batches
    assert {each["response_type"] for each in batches} == {"stream"}


@pytest.mark.parametrize("name", GUESTS)
def test_every_imported_subject_is_exported_by_its_origin(name: str) -> None:
    accounts = server_accounts()

    for each in (i["stream"] for i in accounts[name]["imports"] if "stream" in i):
        given = [e for e in accounts[each["account"]]["exports"] if e.get("stream") == each["subject"]]
        assert [name in e["accounts"] for e in given] == [True]


def test_a_team_reaches_its_own_feeds_and_nothing_else_of_the_services() -> None:
    """Whatever its users make in their account, what it imports is all that it can be aimed at."""
    reached = {
        each["service"]["subject"] for each in team_template()["account"]["imports"] if "service" in each
    }

    assert {subject.split(".")[0] for subject in reached} == {"$JS"}
    assert all(f".mirror-{TEAM}" in subject for subject in reached)
    assert {subject.split(".")[1] for subject in reached} == {"API", "FC"}
    assert {s.split(".")[3] for s in reached if s.startswith("$JS.API")} == {"RESET"}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("pw.evt.jobs.>", "pw.evt.jobs.*.*.*.a.*"),
        ("pw.evt.measurements.revision.measured.v1.*.*", "pw.evt.measurements.revision.measured.v1.a.*"),
    ],
)
def test_the_facts_of_one_namespace(subject: str, expected: str) -> None:
    assert within(subject, "a") == expected


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(Permanent, match="UnknownRole"):
        OURS.role("nobody")


def test_the_generator_reports_outdated_accounts(tmp_path: Path) -> None:
    out = tmp_path / "accounts.json"
    assert main(["--check", "--out", str(out)]) == 1
    assert main(["--out", str(out)]) == 0
    assert main(["--check", "--out", str(out)]) == 0
    out.write_text(out.read_text().replace("pw.work.cache.", "pw."))
    assert main(["--check", "--out", str(out)]) == 1
