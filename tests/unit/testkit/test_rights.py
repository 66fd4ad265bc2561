"""What an audit log and the chart's roles say about each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from tests.rights import __main__ as command

from paddlewheel.devcluster.state import cluster_dirs
from paddlewheel.testkit import rights
from paddlewheel.testkit.charts import services
from paddlewheel.testkit.rights import Asked, Right, compare, granted, kept, read

PODS = Right("job-controller", "", "pods", "patch")


def line(
    decision: str, verb: str = "patch", user: str = "paddle-system:job-controller", **target: str
) -> str:
    event = {
        "verb": verb,
        "user": {"username": f"system:serviceaccount:{user}"},
        "objectRef": {"resource": "pods", **target},
        "annotations": {"authorization.k8s.io/decision": decision},
    }
    return json.dumps(event)


def test_only_the_authorizer_says_that_a_right_is_missing() -> None:
    quota = json.dumps({**json.loads(line("allow", "create")), "responseStatus": {"code": 403}})
    log = [
        line("allow"),
        line("forbid", "get", subresource="log"),
        quota,
        line("forbid", user="team-a:job-controller"),
        '{"verb": "pat',
        json.dumps({"verb": "get", "requestURI": "/version", "user": {"username": "x"}}),
    ]
    assert read(log) == Asked(
        frozenset({PODS, Right("job-controller", "", "pods", "create")}),
        frozenset({Right("job-controller", "", "pods/log", "get")}),
    )


def test_rights_are_missing_unused_or_reviewed_in_vain() -> None:
    unused, reviewed = Right("a", "g", "r", "list"), Right("a", "g", "r", "watch")
    refused = Right("a", "g", "r", "get")
    given = frozenset({PODS, unused, reviewed})
    asked = Asked(frozenset({PODS}), frozenset({refused}))
    found = compare(given, asked, frozenset({reviewed, PODS}))
    assert (found.missing, found.unused, found.stale) == ((refused,), (unused,), (PODS,))
    assert str(refused) == "a: get g/r"


def test_the_charts_rights_are_those_of_its_accounts() -> None:
    given = granted(services())
    assert Right("job-controller", "", "pods/log", "get") in given
    assert Right("job-controller", "coordination.k8s.io", "leases", "create") in given
    assert not [right for right in given if "secrets" in right.resource], "bound by administrators only"


def test_what_a_cluster_was_asked_for_outlives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    logs = cluster_dirs("test-x").audit_log
    logs.parent.mkdir(parents=True)
    logs.write_text(line("allow") + "\n")
    logs.with_name("audit-2026-11-22T20-00-00.000.log").write_text(line("forbid", "list") + "\n")
    folder = tmp_path / "kept"
    asked = rights.keep("test-x", folder)
    assert (
        asked
        == kept(folder)
        == Asked(frozenset({PODS}), frozenset({Right("job-controller", "", "pods", "list")}))
    )
    assert rights.keep("test-y", folder) == Asked()


@pytest.mark.parametrize(
    ("asked", "code", "code_of_make_test"),
    [
        (Asked(), 1, 0),
        (Asked(frozenset({PODS})), 0, 0),
        (Asked(frozenset({Right("a", "", "pods", "get")})), 1, 0),
        (Asked(frozenset({PODS}), frozenset({Right("a", "", "pods", "get")})), 1, 1),
        (Asked(frozenset(), frozenset({PODS})), 1, 1),
    ],
    ids=["nothing kept", "all used", "unused", "missing", "only refused"],
)
def test_make_test_fails_for_missing_rights_alone(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, code: int, code_of_make_test: int
) -> None:
    monkeypatch.setattr(command, "everywhere", list)
    monkeypatch.setattr(command, "granted", lambda _: frozenset({PODS}))
    monkeypatch.setattr(command, "kept", lambda: asked)
    monkeypatch.setattr(command, "UNUSED", {})
    for missing_only, expected in ((False, code), (True, code_of_make_test)):
        with pytest.raises(typer.Exit) as ended:
            command.main(missing_only=missing_only)
        assert ended.value.exit_code == expected
