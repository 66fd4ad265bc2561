"""The ports that `paddlewheel dev up` gives to NATS and the services."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from paddlewheel.cli import dev
from paddlewheel.cli.output import Format
from paddlewheel.cli.processes import Process, ProcessTable

FIRST = 12_000


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The ports of all that was started. The finder answers as if nobody listened on a port yet."""
    found: list[int] = []

    def start(_: ProcessTable, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        if name == "nats":
            found.append(int(command[command.index("-p") + 1]))
        else:
            found.append(int(env[f"{name.replace('-', '_').upper()}_HTTP_PORT"]))
        return Process(name, os.getpid(), 0, "")

    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    monkeypatch.setattr(dev, "_control_plane", lambda *_: "kubeconfig")
    monkeypatch.setattr(dev, "tool", str)
    monkeypatch.setattr(dev, "free_ports", lambda count: list(range(FIRST, FIRST + count)))
    monkeypatch.setattr(ProcessTable, "start", start)
    return found


def test_no_two_processes_get_the_same_port(given: list[int]) -> None:
    dev.dev_up(output=Format.JSON)
    assert len(given) == 2 + len(dev.SERVICES)
    assert len(set(given)) == len(given), given


@pytest.mark.parametrize("kept", [FIRST, FIRST + 2, FIRST - 1])
def test_the_port_of_nats_stays_and_no_service_gets_it(given: list[int], tmp_path: Path, kept: int) -> None:
    """NATS, which has just been started again, may not listen on it yet."""
    record = tmp_path / "dev" / "nats" / "port"
    record.parent.mkdir(parents=True)
    record.write_text(str(kept))
    dev.dev_up(output=Format.JSON)
    assert given[0] == kept
    assert len(set(given)) == len(given) == 2 + len(dev.SERVICES), given
    assert record.read_text() == str(kept)
