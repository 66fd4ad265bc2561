"""What `paddlewheel bus status` says of a bus that is not as declared."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.admin.inspect import BusStatus, StreamStatus
from paddlewheel.cli import declared
from paddlewheel.cli.bus import Look, _print_look
from paddlewheel.cli.declared import services_in
from paddlewheel.cli.target import Where
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.testkit.charts import named, render, services

MADE = datetime(2026, 1, 2, tzinfo=UTC)


def make_stream(**drift: tuple[object, object]) -> StreamStatus:
    return StreamStatus(
        "PW_JOBS", messages=0, bytes=0, max_bytes=0, consumers=0, replicas=1, created=MADE, drift=drift
    )


def test_who_makes_and_corrects_streams_is_named_with_its_log() -> None:
    look = Look(BusStatus((make_stream(max_age=(2.0, 1.0)),), ("PW_DATASETS",), (), ()), {})

    missing, differs = look.faults

    assert missing.startswith("stream PW_DATASETS is missing: bus-installer")
    assert differs.startswith("stream PW_JOBS differs in max_age: bus-installer")
    for fault in (missing, differs):
        assert "logs deployment/bus-installer" in fault
        assert "`paddlewheel bus install`" in fault
        assert "controller" not in fault


def test_the_log_that_is_named_is_there() -> None:
    assert named(services(), "Deployment", "bus-installer")["metadata"]["namespace"] == "paddle-system"


def test_what_is_left_of_a_service_is_shown_with_its_commands_and_is_no_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "nats consumer rm --force PW_JOBS notebooks-jobs"
    look = Look(BusStatus((), (), (), ()), {}, {"consumer notebooks-jobs of PW_JOBS": (command,)})

    _print_look(look)

    said = " ".join(capsys.readouterr().out.split())
    assert "left over? consumer notebooks-jobs of PW_JOBS belongs to no service in nats.services" in said
    assert command in said
    assert look.faults == []


def test_the_services_that_are_declared_are_those_that_the_chart_gives_to_the_installer() -> None:
    value = "nats.services[0].name=notebooks,nats.services[0].follows={jobs}"
    deployment = named(render("paddlewheel", "crds.install=false", value), "Deployment", "bus-installer")

    [service] = services_in(deployment) or ()
    assert (service.name, service.follows) == ("notebooks", ("jobs",))
    assert services_in(named(services(), "Deployment", "bus-installer")) == ()


def test_an_installer_of_a_release_without_services_tells_nothing() -> None:
    container = {"env": [{"name": "BUS_INSTALLER_TEAMS", "value": "[]"}]}

    assert services_in({"spec": {"template": {"spec": {"containers": [container]}}}}) is None


class Cluster:
    """Answers with an object, or an error."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def get(self, path: str) -> str:
        assert path.endswith("/paddle-system/deployments/bus-installer")
        if isinstance(self._answer, Exception):
            raise self._answer
        return json.dumps(self._answer)


async def declared_in(answer: object, monkeypatch: pytest.MonkeyPatch) -> list[str] | None:
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.setattr(Where, "target", Cluster(answer))
    found = await declared.declared_services(Where())
    return None if found is None else [service.name for service in found]


async def test_a_cluster_that_does_not_tell_what_is_declared_is_no_proof_that_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = "nats.services[0].name=notebooks,nats.services[0].follows={jobs}"
    deployment = named(render("paddlewheel", "crds.install=false", value), "Deployment", "bus-installer")
    newer = json.loads(json.dumps(deployment).replace("publishes", "offers"))
    of_another_release = json.loads(json.dumps(deployment))
    of_another_release["metadata"]["labels"]["app.kubernetes.io/version"] = "9.9.9"

    assert await declared_in(deployment, monkeypatch) == ["notebooks"]
    for answer in (
        NotFound("bus-installer"),
        Permanent("ToolFailed", "(Forbidden)"),
        newer,
        of_another_release,
    ):
        assert await declared_in(answer, monkeypatch) is None
    monkeypatch.setenv("NATS_URL", "nats://elsewhere:4222")
    assert await declared.declared_services(Where()) is None
