"""The supervisor, with harmless programs and without namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.devcluster.plan import Plan, Unit, save
from paddlewheel.testkit.wait import eventually

SLEEP = ("sleep", "300")


class Supervised:
    """A running supervisor and the state it reports for its units."""

    def __init__(
        self, folder: Path, units: tuple[Unit, ...], setup: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        self._status = folder / "status.json"
        plan = Plan(log_dir=str(folder), status_file=str(self._status), units=units, setup=setup)
        save(plan, folder / "plan.json")
        argv = [sys.executable, "-m", "paddlewheel.devcluster.supervisor", str(folder / "plan.json")]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, start_new_session=True)

    def units(self) -> dict[str, dict[str, Any]]:
        """All of them at one time. Raises LookupError while nothing is reported."""
        if not self._status.exists():
            raise LookupError("no status yet")
        found: dict[str, dict[str, Any]] = json.loads(self._status.read_text())
        return found

    def unit(self, name: str) -> dict[str, Any]:
        return self.units()[name]

    def end(self) -> None:
        pids = [unit["pid"] for unit in json.loads(self._status.read_text()).values()]
        self.process.terminate()
        self.process.communicate(timeout=60)
        for pid in filter(None, pids):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(*units: Unit) -> Supervised:
        started.append(Supervised(tmp_path, units))
        return started[-1]

    yield start
    for one in started:
        one.end()


async def test_a_unit_waits_for_its_dependencies(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    serve = f"x = s.socket(s.AF_UNIX); x.bind({str(socket)!r}); x.listen()"
    code = f"import socket as s, time; {serve}; time.sleep(300)"
    listens = (sys.executable, "-c", code)
    seen = supervise(Unit("second", SLEEP, after=("first",)), Unit("first", listens, ready=f"unix:{socket}"))
    await eventually(lambda: seen.unit("first")["pid"] > 0)
    units = seen.units()
    assert units["first"]["ready"] or units["second"]["pid"] == 0
    await eventually(lambda: seen.unit("second")["ready"])


async def test_a_unit_that_exits_is_restarted(supervise: Callable[..., Supervised]) -> None:
    seen = supervise(Unit("only", SLEEP))
    await eventually(lambda: seen.unit("only")["ready"])
    first = seen.unit("only")["pid"]
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: seen.unit("only")["restarts"] == 1)
    assert seen.unit("only")["pid"] not in (0, first)


async def test_output_of_a_unit_is_in_its_log(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    supervise(Unit("talker", ("sh", "-c", "echo out; echo err >&2; exec sleep 300")))
    log = tmp_path / "talker.log"
    await eventually(lambda: log.exists() and log.read_text() == "out\nerr\n")


def test_a_failed_setup_ends_the_supervisor_before_any_unit_starts(tmp_path: Path) -> None:
    seen = Supervised(tmp_path, (Unit("only", SLEEP),), setup=(("false",),))
    _, said = seen.process.communicate(timeout=60)
    assert seen.process.returncode != 0
    assert b"false" in said
    assert not (tmp_path / "only.log").exists()
