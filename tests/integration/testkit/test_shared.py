"""What a test run shares is started once and gone with the run, however it ends."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paddlewheel.testkit.shared import TestRun, remove_abandoned
from paddlewheel.testkit.wait import eventually

SERVER = ("sleep", "1000")


class Owner:
    """A process that stands for the pytest of a run, and that run as its first worker sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(SERVER)
        self.run = TestRun(self.process.pid, 0)
        self.starts = 0

    def start(self, home: Path) -> Mapping[str, object]:
        self.starts += 1
        self.run.spawn(SERVER, home / "server.log", lambda: True)
        return {"port": 1000 + self.starts}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    @property
    def processes(self) -> list[int]:
        """Guard and servers that were started."""
        return [int(line.split()[0]) for line in (self.run.directory / "processes").read_text().splitlines()]


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.kill()
    made.run.end()


def runs(pid: int) -> bool:
    """A killed child of this process stays as a zombie until this process ends."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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


def test_the_end_of_the_run_ends_everything(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    pids = owner.processes
    assert [runs(pid) for pid in pids] == [True, True]
    owner.run.end()
    assert not owner.run.directory.exists()
    assert [pid for pid in pids if runs(pid)] == []
    owner.run.end()


async def test_a_killed_run_is_ended_by_its_guard(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    pids = owner.processes
    owner.kill()
    await eventually(lambda: not any(map(runs, pids)) and not owner.run.directory.exists(), within=30)


def test_a_run_killed_together_with_its_guard_is_ended_by_the_next(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    guard, server = owner.processes
    subprocess.run(["kill", "-9", str(guard)], check=True)
    owner.kill()
    assert runs(server)
    remove_abandoned()
    assert not runs(server)
    assert not owner.run.directory.exists()


def test_a_run_that_is_alive_is_not_abandoned(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    remove_abandoned()
    assert all(map(runs, owner.processes))


def test_a_process_id_that_was_given_to_another_is_left_alone(owner: Owner) -> None:
    owner.run.share("server", owner.start)
    stranger = subprocess.Popen(SERVER)
    with (owner.run.directory / "processes").open("a") as file:
        file.write(f"{stranger.pid} 12345\n")
    owner.run.end()
    assert runs(stranger.pid)
    stranger.kill()
    stranger.wait(10)
