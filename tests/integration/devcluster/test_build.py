"""Building the cluster's programs, with a fake Go toolchain."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.binaries import COREDNS, cache_dir, ensure

FAKE_GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.26.1 linux/amd64" ;;
list) printf 'a\\nb\\nc\\nd\\n' ;;
install)
  echo built >> "{log}"
  printf 'a\\nb\\n' >&2
  {act}
  ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "builds"


def use_fake_go(monkeypatch: pytest.MonkeyPatch, folder: Path, log: Path, act: str) -> None:
    program = folder / "bin" / "go"
    program.parent.mkdir()
    program.write_text(FAKE_GO.format(log=log, act=act))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def quiet(_message: str, _fraction: float) -> None:
    """Discards progress."""


def test_programs_are_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    use_fake_go(monkeypatch, tmp_path, log, 'echo program > "$GOBIN/coredns"')
    first = ensure((COREDNS,), quiet)
    assert ensure((COREDNS,), quiet) == first
    assert first.path("coredns").read_text() == "program\n"
    assert log.read_text() == "built\n"


def test_concurrent_builders_build_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    use_fake_go(monkeypatch, tmp_path, log, 'sleep 0.5; echo program > "$GOBIN/coredns"')
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: ensure((COREDNS,), quiet), range(2))
    assert one == other
    assert log.read_text() == "built\n"


def test_progress_increases_to_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    use_fake_go(monkeypatch, tmp_path, log, 'echo program > "$GOBIN/coredns"')
    seen: list[float] = []
    ensure((COREDNS,), lambda _message, fraction: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert any(0 < fraction < 1 for fraction in seen)


def test_a_failed_build_reports_the_compiler_output_and_leaves_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    use_fake_go(monkeypatch, tmp_path, log, "echo '# main.go:1: syntax error' >&2; exit 1")
    with pytest.raises(Permanent, match="syntax error") as caught:
        ensure((COREDNS,), quiet)
    assert caught.value.reason == "BuildFailed"
    assert not [path for path in (cache_dir() / "bin").glob("coredns-*") if path.suffix != ".building"]


def test_a_build_can_be_retried_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    act = f'if [ -e "{tmp_path}/fixed" ]; then echo program > "$GOBIN/coredns"; else exit 1; fi'
    use_fake_go(monkeypatch, tmp_path, log, act)
    with pytest.raises(Permanent):
        ensure((COREDNS,), quiet)
    (tmp_path / "fixed").touch()
    assert ensure((COREDNS,), quiet).path("coredns").exists()
