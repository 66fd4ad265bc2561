"""What an audit log and the chart's roles say about each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.rights import __main__ as command

from paddlewheel.devcluster.state import cluster_dirs
from paddlewheel.testkit import rights
from paddlewheel.testkit.charts import services
from paddlewheel.testkit.rights import Asked, Right, by_consent, compare, granted, kept, read, requested

PODS = Right("job-controller", "", "pods", "patch")
OTHER_PODS = replace(PODS, verb="watch")


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


ROLES = "rbac.authorization.k8s.io"


def change(at: int, verb: str, plural: str, name: str, namespace: str = "", **made: Any) -> str:
    """Of a role or a binding by Helm, asked for and answered within a millisecond."""
    target = {"apiGroup": ROLES, "resource": plural, "name": name, "namespace": namespace}
    event: dict[str, Any] = {
        "verb": verb,
        "user": {"username": "admin"},
        "objectRef": {key: value for key, value in target.items() if value},
        "responseStatus": {"code": 201 if verb == "create" else 200},
        "responseObject": made,
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }
    return json.dumps({**event, **timestamps(at)})


def timestamps(at: int) -> Mapping[str, str]:
    """Minute `at`."""
    minute = f"2026-11-22T20:{at:02}:0"
    return {"requestReceivedTimestamp": f"{minute}0.000001Z", "stageTimestamp": f"{minute}0.000900Z"}


def role(at: int, verb: str = "create", verbs: Sequence[str] = ("patch",)) -> str:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    return change(at, verb, "clusterroles", "of-jobs", rules=rules)


def binding(at: int, verb: str = "create", namespace: str = "") -> str:
    plural = "rolebindings" if namespace else "clusterrolebindings"
    subject = {"kind": "ServiceAccount", "namespace": "paddle-system", "name": "job-controller"}
    reference = {"kind": "ClusterRole", "name": "of-jobs"}
    return change(at, verb, plural, "of-jobs", namespace, roleRef=reference, subjects=[subject])


def refusal(at: int, verb: str = "patch", namespace: str = "team-a") -> str:
    return json.dumps(json.loads(line("forbid", verb, namespace=namespace)) | timestamps(at))


@pytest.mark.parametrize("deletes", [role, binding])
def test_what_is_refused_while_a_release_is_being_removed_is_not_missing(deletes: Callable[..., str]) -> None:
    installed = [role(1), binding(2)]
    removed = [*installed, deletes(4, "delete")]
    assert not read([*removed, refusal(5)]).refused
    assert not read([refusal(5), *reversed(removed)]).refused, "the log's files may come in any order"
    early = json.loads(refusal(4)) | {"stageTimestamp": "2026-11-22T20:04:00.000500Z"}
    assert not read([*removed, json.dumps(early)]).refused, "answered before the deletion itself"


def test_an_api_server_that_starts_refuses_what_its_roles_give() -> None:
    assert not read([role(1), binding(2), refusal(3)]).refused
    assert not read([role(1), binding(2), binding(3, "delete"), binding(4), refusal(5)]).refused


@pytest.mark.parametrize(
    "log",
    [
        [refusal(5)],
        [role(1), refusal(5)],
        [role(1), binding(2), binding(4, "delete"), refusal(5, "deletecollection")],
        [role(1), binding(2), role(3, "patch", verbs=["get"]), refusal(5)],
        [role(1), binding(2), role(3, "delete"), role(4), role(4, "patch", verbs=["get"]), refusal(5)],
        [role(1), binding(2, namespace="team-b"), binding(3, "delete", "team-b"), refusal(5)],
    ],
    ids=[
        "never granted",
        "never bound",
        "another verb, during the removal",
        "an upgrade took the verb away",
        "installed again, then taken away",
        "removed in another namespace",
    ],
)
def test_any_other_refusal_is_missing(log: Sequence[str]) -> None:
    assert len(read(log).refused) == 1


def test_a_namespace_that_goes_takes_its_bindings_along() -> None:
    all_of_it = change(3, "deletecollection", "rolebindings", "", "team-a")
    log = [role(1), binding(2, namespace="team-a"), all_of_it]
    assert not read([*log, refusal(4)]).refused
    assert read([*log, refusal(4, namespace="team-b")]).refused


def test_rights_are_missing_unused_or_reviewed_in_vain() -> None:
    unused, reviewed = Right("a", "g", "r", "list"), Right("a", "g", "r", "watch")
    refused = Right("a", "g", "r", "get")
    given = frozenset({PODS, unused, reviewed})
    asked = Asked(frozenset({PODS}), frozenset({refused}))
    found = compare(given, asked, frozenset({reviewed, PODS}))
    assert (found.missing, found.unused, found.stale) == ((refused,), (unused,), (PODS,))
    assert str(refused) == "a: get g/r"
    assert compare(given, asked, frozenset(), frozenset({refused})).missing == ()


def test_the_charts_rights_are_those_of_its_accounts() -> None:
    given = granted(services())
    assert Right("job-controller", "", "pods/log", "get") in given
    assert Right("job-controller", "coordination.k8s.io", "leases", "create") in given
    secrets = {(right.account, right.verb) for right in given if "secrets" in right.resource}
    assert secrets == {
        *(("dataset-controller", verb) for verb in ("get", "create", "patch", "delete")),
        # Those of the bus only, by name.
        *(("bus-auth", verb) for verb in ("get", "patch")),
    }


def test_rights_that_are_never_requested_need_no_use() -> None:
    found = requested()
    assert Right("bus-auth", "authentication.k8s.io", "tokenreviews", "create") in found
    assert not [right for right in found if right.verb == "use"]


def test_only_what_a_namespace_gives_to_be_served_may_be_refused() -> None:
    found = by_consent()
    assert Right("dataset-controller", "", "secrets", "get") in found
    assert {right.account for right in found} == {"dataset-controller"}
    assert not [right for right in found if right.verb in ("list", "watch")]


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
        (Asked(), 1, 1),
        (Asked(frozenset({PODS})), 0, 0),
        (Asked(frozenset({Right("a", "", "pods", "get")})), 1, 1),
        (Asked(frozenset({OTHER_PODS})), 1, 0),
        (Asked(frozenset({PODS}), frozenset({Right("a", "", "pods", "get")})), 1, 1),
        (Asked(frozenset(), frozenset({PODS})), 1, 1),
    ],
    ids=["nothing kept", "all used", "a silent service", "unused", "missing", "only refused"],
)
def test_make_test_fails_for_missing_rights_alone(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, code: int, code_of_make_test: int
) -> None:
    given = {PODS, OTHER_PODS} if OTHER_PODS in asked.used else {PODS}
    monkeypatch.setattr(command, "requested", lambda: frozenset(given))
    monkeypatch.setattr(command, "kept", lambda: asked)
    monkeypatch.setattr(command, "UNUSED", {})
    for missing_only, expected in ((False, code), (True, code_of_make_test)):
        with pytest.raises(typer.Exit) as ended:
            command.main(missing_only=missing_only)
        assert ended.value.exit_code == expected
