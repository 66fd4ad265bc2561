"""The policy that follows from settings in the chart's form."""

from __future__ import annotations

import json

import pytest

from bus_auth.app import policy_of
from bus_auth.config import Settings
from paddlewheel.core.errors import Permanent
from paddlewheel.core.settings import load_settings

SERVICE = {"name": "notebooks", "publishes": [], "follows": ["jobs"]}


def test_services_of_others_are_roles_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUS_AUTH_KEY_FILE", "key")
    monkeypatch.setenv("BUS_AUTH_SERVICES", json.dumps([SERVICE]))

    declared = policy_of(load_settings(Settings)).declared

    assert [each.durable for each in declared.role("notebooks").durables] == ["notebooks-jobs"]
    assert declared.role("job-controller")


def test_a_service_with_the_name_of_a_role_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUS_AUTH_KEY_FILE", "key")
    monkeypatch.setenv("BUS_AUTH_SERVICES", json.dumps([{**SERVICE, "name": "operator"}]))

    with pytest.raises(Permanent, match=r"BUS_AUTH_SERVICES.*the name operator is taken"):
        load_settings(Settings)


@pytest.mark.parametrize("team", [{"name": "vision", "namespaces": ["*"]}, {"name": "a" * 41}])
def test_a_team_has_a_name_and_namespaces_that_the_chart_takes(
    team: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUS_AUTH_KEY_FILE", "key")
    monkeypatch.setenv("BUS_AUTH_TEAMS", json.dumps([team]))

    with pytest.raises(Permanent, match="BUS_AUTH_TEAMS"):
        load_settings(Settings)
