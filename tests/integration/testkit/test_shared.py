"""What a test run shares is started once and gone with the run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paddlewheel.testkit.shared import MARK, TestRun, remove_abandoned
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

SERVER = ("sleep", "1000")


class Owner:
    """A process that stands for the pytest of a run, and that run as its first worker sees it."""

    def __init__(self, files: Path) -> None:
        self.process = subprocess.Popen(SERVER)
        self.run = TestRun(self.process.pid, 0)
        self.run.begin(files)
        self.starts = 0

    def start(self, home: Path) -> Mapping[str, object]:
        self.starts += 1
        self.run.spawn(SERVER, home / "server.log", lambda: True)
        return {"port": 1000 + self.starts}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.kill()
    made.run.end()


def test_it_is_started_by_the_first_only(owner: Owner) -> None:
    values: list[Mapping[str, object]] = []
    workers = [TestRun(owner.run.owner, number) for number in range(4)]
    threads = [
        threading.Thread(target=lambda w=worker: values.append(w.share("server", owner.start)))
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (owner.starts, values) == (1, [{"port": 1001}] * 4)


def test_servers_of_other_names_are_others(owner: Owner) -> None:
    ports = [owner.run.share(name, owner.start)["port"] for name in ("one", "two", "one")]
    assert ports == [1001, 1002, 1001]


def test_what_did_not_start_is_named_and_started_by_the_next(owner: Owner) -> None:
    def fail(home: Path) -> Mapping[str, object]:
        owner.run.spawn(("sh", "-c", "echo no room; exit 1"), home / "server.log", lambda: False)
        return {}

    with pytest.raises(AssertionError, match="did not start:\nno room"):
        owner.run.share("server", fail)
    assert owner.run.share("server", owner.start) == {"port": 1001}


async def test_the_end_of_the_run_ends_everything(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    await eventually(lambda: len(owner.run.processes()) == 2, what="the guard and the server")
    owner.run.end()
    assert not owner.run.directory.exists()
    assert owner.run.processes() == []
    owner.run.end()


async def test_a_server_that_overwrote_its_environment_ends_with_the_run(owner: Owner) -> None:
    pids: list[int] = []

    def start(home: Path) -> Mapping[str, object]:
        owner.run.spawn(("env", "-i", *SERVER), home / "server.log", lambda: True)
        pids.extend(set(owner.run.processes()) - before)
        return {}

    before = set(owner.run.processes())
    owner.run.share("redis", start)
    (pid,) = pids
    owner.run.end()
    await eventually(lambda: not Path(f"/proc/{pid}/environ").exists() or _is_ended(pid))


def _is_ended(pid: int) -> bool:
    """Nobody has waited for it in this process."""
    return ") Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize("name", [MARK, "TMPDIR"])
async def test_what_a_test_left_running_ends_with_the_run(owner: Owner, name: str) -> None:
    environment = {MARK: str(owner.run.owner), "TMPDIR": str(owner.run.temporary)}
    left = subprocess.Popen(SERVER, env={name: environment[name]}, start_new_session=True)
    await eventually(lambda: left.pid in owner.run.processes(), what="it has its environment")
    owner.run.end()
    assert left.wait(10) == -signal.SIGKILL


def test_what_a_test_left_mounted_ends_with_the_run(owner: Owner, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
    assert folder.is_mount()
    owner.run.end()
    assert not folder.is_mount()


async def test_a_killed_run_is_ended_by_its_guard(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    owner.kill()
    await eventually(lambda: not owner.run.directory.exists())
    await eventually(lambda: owner.run.processes() == [], what="the guard ends as well")


async def test_a_run_killed_together_with_its_guard_is_ended_by_the_next(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    await eventually(lambda: len(owner.run.processes()) == 2, what="the guard and the server")
    guard = next(
        pid for pid in owner.run.processes() if b"shared" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(guard, signal.SIGKILL)
    await eventually(lambda: len(owner.run.processes()) == 1, what="only the server is left")
    owner.kill()
    remove_abandoned()
    assert owner.run.processes() == []
    assert not owner.run.directory.exists()


async def test_a_run_that_is_alive_is_not_abandoned(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    await eventually(lambda: len(owner.run.processes()) == 2, what="the guard and the server")
    remove_abandoned()
    assert len(owner.run.processes()) == 2


def test_pytest_runs_twice_in_a_process_that_has_temporary_files_before_and_after(tmp_path: Path) -> None:
    """mutmut runs it for each of its steps."""
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): pass")
    runs = "[pytest.main(['-q', '-p', 'paddlewheel.testkit.shared', '-p', 'no:cacheprovider']) for _ in '12']"
    code = f"import pytest, tempfile; print({runs}, tempfile.gettempdir())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"[<ExitCode.OK: 0>, <ExitCode.OK: 0>] {tmp_path}\n")
