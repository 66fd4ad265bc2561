"""The table of local processes: what lives is found again, what was reused is not."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from paddlewheel.cli.processes import Process, ProcessTable, start_time

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_a_started_process_lives_until_it_is_stopped(tmp_path: Path) -> None:
    table = ProcessTable(tmp_path)
    started = table.start("sleeper", SLEEPER, os.environ)
    assert started.alive
    assert table.start("sleeper", SLEEPER, os.environ) == started, "a second start finds the first"
    assert [p.name for p in table.stop_all()] == ["sleeper"]
    assert not started.alive
    assert table.recorded() == []


def test_a_reused_pid_is_not_ours(tmp_path: Path) -> None:
    stranger = Process("gone", os.getpid(), started=start_time(os.getpid()) - 1, log="")
    (tmp_path / "gone.json").write_bytes(orjson.dumps(asdict(stranger)))
    table = ProcessTable(tmp_path)
    assert not table.recorded()[0].alive
    assert table.stop_all() == [], "nothing was signalled"
