"""`paddlewheel cluster` and `paddlewheel doctor` as a script sees them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from paddlewheel.cli import cluster, doctor
from paddlewheel.cli.repo import repo_file
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.addons.ready import AddonStatus
from paddlewheel.devcluster.binaries import Binaries, Module
from paddlewheel.devcluster.doctor import Check
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterRecord, cluster_dirs, save_record
from paddlewheel.devcluster.status import DEGRADED, RUNNING, ClusterStatus, ProcessStatus


@pytest.fixture
def doctor_app() -> typer.Typer:
    app = typer.Typer()
    app.command()(doctor.doctor)
    return app


def make_status(state: str) -> ClusterStatus:
    process = ProcessStatus("etcd", "control-plane", ready=True, restarts=0, log="/logs/etcd.log")
    return ClusterStatus("demo", state, 2, 0, "198.18.0.2", "198.18.0.1", "/home/kubeconfig", (process,))


@pytest.mark.parametrize(("state", "code"), [(RUNNING, 0), (DEGRADED, 1)])
def test_exit_code_of_status(state: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "status", lambda _name: make_status(state))
    done = CliRunner().invoke(cluster.app, ["status", "-o", "json"])
    assert done.exit_code == code
    assert json.loads(done.stdout)["processes"][0]["name"] == "etcd"


def test_list_prints_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "list_clusters", lambda: (make_status(RUNNING),))
    done = CliRunner().invoke(cluster.app, ["list", "-o", "json"])
    assert [row["name"] for row in json.loads(done.stdout)] == ["demo"]


def test_list_shows_addons_and_where_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace(make_status(RUNNING), addons=(AddonStatus("gateway", True, "http://198.18.5.139"),))
    monkeypatch.setattr(cluster, "list_clusters", lambda: (seen,))
    done = CliRunner().invoke(cluster.app, ["list", "-o", "json"])
    assert json.loads(done.stdout)[0]["addons"] == [
        {"name": "gateway", "ready": True, "url": "http://198.18.5.139"}
    ]


def test_status_says_how_a_route_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace(make_status(DEGRADED), addons=(AddonStatus("gateway", False, "http://198.18.5.139"),))
    monkeypatch.setattr(cluster, "status", lambda _name: seen)
    done = CliRunner().invoke(cluster.app, ["status"])
    assert "gateway: not ready" in done.stdout
    assert "curl -H 'Host: NAME' http://198.18.5.139" in done.stdout


def test_up_passes_every_addon_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClusterSpec] = []
    monkeypatch.setattr(cluster, "up", lambda spec, _report: asked.append(spec))
    monkeypatch.setattr(cluster, "status", lambda _name: make_status(RUNNING))
    CliRunner().invoke(cluster.app, ["up", "--with", "gateway", "--with", "knative", "-o", "json"])
    assert [spec.addons for spec in asked] == [("gateway", "knative")]


def test_up_refuses_an_unknown_addon_before_anything_is_started() -> None:
    refused = CliRunner().invoke(cluster.app, ["up", "--with", "istio"])
    assert isinstance(refused.exception, Permanent)
    assert "there are: gateway, knative" in refused.exception.message


def test_what_clusters_run_is_built_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ensure(modules: tuple[Module, ...], _report: object) -> Binaries:
        asked.extend(module.name for module in modules)
        return Binaries({"kwok": Path("/cache/kwok")})

    monkeypatch.setattr("paddlewheel.devcluster.binaries.ensure", ensure)
    done = CliRunner().invoke(cluster.app, ["build", *programs_of_make_test(), "-o", "json"])
    assert json.loads(done.stdout) == {"kwok": "/cache/kwok"}
    assert asked == programs_of_make_test()
    everything = CliRunner().invoke(cluster.app, ["build"])
    assert everything.stdout == "kwok  /cache/kwok\n"
    assert {*asked} == {module.name for module in binaries.ALL}


def programs_of_make_test() -> list[str]:
    [line] = re.findall(r"^PROGRAMS := (.*)$", repo_file("Makefile").read_text(), re.MULTILINE)
    return str(line).split()


def test_an_unknown_program_is_refused_with_those_there_are() -> None:
    refused = CliRunner().invoke(cluster.app, ["build", "kwok", "kubernets"])
    assert refused.exit_code == 2
    assert "no program kubernets" in refused.output


def test_kubeconfig_prints_only_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    dirs = cluster_dirs("mine")
    dirs.root.mkdir(parents=True)
    save_record(dirs, ClusterRecord(ClusterSpec(name="mine"), slot=0))
    done = CliRunner().invoke(cluster.app, ["kubeconfig", "--name", "mine"])
    assert done.stdout == f"{dirs.kubeconfig}\n"


def test_error_for_a_missing_cluster_names_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    done = CliRunner().invoke(cluster.app, ["status", "--name", "absent"])
    assert isinstance(done.exception, Permanent)
    assert "paddlewheel cluster up --name absent" in done.exception.message


def test_a_change_of_an_existing_cluster_is_refused_field_by_field_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    dirs = cluster_dirs("mine")
    dirs.root.mkdir(parents=True)
    save_record(dirs, ClusterRecord(ClusterSpec("mine", nodes=3, fake_nodes=5), slot=0))
    refused = CliRunner().invoke(cluster.app, ["up", "--name", "mine", "--control-plane-only"])
    assert isinstance(refused.exception, Permanent)
    assert refused.exception.message == (
        "cluster mine exists with nodes 3, not 2, control_plane_only False, not True, fake_nodes 5, not 0; "
        "`paddlewheel cluster up --name mine --nodes 3 --fake-nodes 5` starts it as it is, "
        "`paddlewheel cluster down --name mine` deletes it and everything in it"
    )


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_exit_code_of_doctor(
    ok: bool, code: int, doctor_app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        doctor, "examine", lambda: (Check("runc", ok, "found", "" if ok else "apt-get install runc"),)
    )
    done = CliRunner().invoke(doctor_app, ["-o", "json"])
    assert done.exit_code == code
    assert json.loads(done.stdout)[0]["ok"] is ok


def test_doctor_fix_repairs_and_checks_again(
    doctor_app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended: list[str] = []
    monkeypatch.setattr(doctor, "examine", lambda: (Check("runc", bool(mended), "x", ""),))
    monkeypatch.setattr(
        doctor, "install_missing", lambda checks, _report: mended.extend(check.name for check in checks)
    )
    assert CliRunner().invoke(doctor_app, ["--fix", "-o", "json"]).exit_code == 0
    assert mended == ["runc"]
