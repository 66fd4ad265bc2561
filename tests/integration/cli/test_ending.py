"""How commands end on signals and closed pipes: the code a shell expects, one line at most, nothing left."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.cli.command import COMMAND_TIMEOUT_SECONDS, Ended, ended, run, start

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Bus, RawMessage
from paddlewheel.testkit.chart_bus import ChartBus, install, running
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.patient_bus import connect
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually

PROGRAM = Path(sys.executable).with_name("paddlewheel")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
CLOSED_PIPE = 141
MANY = 2000
"""Facts whose text does not fit into a pipe."""


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    connected = await connect(nats_server.url, name="test")
    yield connected
    await connected.close()


@asynccontextmanager
async def nobody_reads() -> AsyncIterator[int]:
    """The end for writing of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


async def first_line(process: Process) -> str:
    assert process.stdout
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        return (await process.stdout.readline()).decode()


def close_output(process: Process) -> None:
    """As `head` does."""
    assert process.stdout
    process.stdout._transport.close()  # type: ignore[attr-defined]


async def end_of(process: Process) -> Ended:
    """Its end, when nobody reads its output."""
    assert process.stderr
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        said = await process.stderr.read()
        return Ended(await process.wait(), "", said.decode())


@pytest.mark.parametrize(
    "arguments",
    long_after(
        3,
        map(
            str.split,
            (
                "--help",
                "events --no-follow",
                "bus status -o json",
                "--version",
                "events --help",
                "events -o json",
                "bus status",
                "bus replay --job default/*",
                "dlq list",
                "dlq list -o json",
                "cluster list",
                "cluster list -o json",
                "dev status",
                "dev logs service",
                "doctor",
                "doctor -o json",
            ),
        ),
    ),
    ids=" ".join,
)
async def test_a_command_whose_output_nobody_reads_ends_quietly(
    bus: Bus, nats_url: str, tmp_path: Path, arguments: list[str]
) -> None:
    record_log(tmp_path)
    await bus.publish(make_gated(1))
    async with nobody_reads() as pipe:
        env = {"NATS_URL": nats_url, "PADDLEWHEEL_HOME": str(tmp_path)}
        found = await end_of(await start(*arguments, env=env, stdout=pipe))
    assert (found.code, found.err) == (CLOSED_PIPE, "")


def record_log(home: Path) -> None:
    """As if `dev up` had started a process."""
    log = home / "dev" / "service.log"
    log.parent.mkdir()
    log.write_text("a line\n")
    record = {"name": "service", "pid": 0, "started": 0, "log": str(log)}
    log.with_suffix(".json").write_text(json.dumps(record))


async def test_output_that_cannot_be_written_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "--version", stdout=full, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            _, said = await process.communicate()
    assert (process.returncode, said) == (1, b"error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(
    "options", long_after(1, map(str.split, ("", "--no-follow", "-o json", "--no-follow -o json")))
)
async def test_events_end_quietly_when_their_reader_leaves(
    bus: Bus, nats_url: str, options: list[str]
) -> None:
    for start_ in range(0, MANY, 100):
        await asyncio.gather(*(bus.publish(make_gated(number)) for number in range(start_, start_ + 100)))
    process = await start("events", *options, env={"NATS_URL": nats_url})
    assert "gated" in await first_line(process)
    close_output(process)
    found = await end_of(process)
    assert (found.code, found.err) == (CLOSED_PIPE, "")


async def test_events_end_quietly_when_their_reader_leaves_while_there_is_nothing_to_write(
    bus: Bus, nats_url: str
) -> None:
    await bus.publish(make_gated(1))
    process = await start("events", env={"NATS_URL": nats_url})
    await first_line(process)
    close_output(process)
    found = await end_of(process)
    assert (found.code, found.err) == (CLOSED_PIPE, "")


async def test_a_command_ends_when_nobody_reads_its_errors(nats_server: NatsServer) -> None:
    nats_server.kill()
    async with nobody_reads() as pipe:
        process = await start("events", env={"NATS_URL": nats_server.url}, stderr=pipe)
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            assert await process.wait() == CLOSED_PIPE


@pytest.mark.parametrize("number", long_after(1, CODES), ids=lambda number: number.name)
async def test_a_signal_ends_events_with_its_code_and_a_hint(
    bus: Bus, nats_url: str, number: signal.Signals
) -> None:
    await bus.publish(make_gated(1))
    process = await start("events", env={"NATS_URL": nats_url})
    await first_line(process)
    process.send_signal(number)
    found = await ended(process)
    hint = "continue with --since, or from the same position with --durable NAME"
    assert (found.code, found.err) == (CODES[number], f"{WORDS[number]}: {hint}\n")


@pytest.mark.long
async def test_a_command_that_a_shell_started_in_the_background_ignores_ctrl_c_and_ends_in_order(
    bus: Bus, nats_url: str
) -> None:
    await bus.publish(make_gated(1))
    process = await start("events", env={"NATS_URL": nats_url}, ignore="INT")
    assert "gated" in await first_line(process)
    process.send_signal(signal.SIGINT)
    await bus.publish(make_gated(2))
    assert "gated" in await first_line(process)
    process.send_signal(signal.SIGTERM)
    found = await ended(process)
    assert (found.code, found.err.count("\n")) == (CODES[signal.SIGTERM], 1)


async def test_ctrl_c_before_the_command_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(1000)\n")
    process = await start("cluster", "list", env={"PYTHONPATH": str(tmp_path)})
    assert await first_line(process) == "loading\n"
    process.send_signal(signal.SIGINT)
    found = await ended(process)
    assert (found.code, found.err.count("\n")) == (130, 1)
    assert found.err.startswith("interrupted: ")


async def test_ctrl_c_at_a_question_changes_nothing(bus: NatsBus, nats_url: str) -> None:
    for number in (1, 2):
        await bus.publish_raw(RawMessage("pw.dlq.test", str(number).encode()))
    terminal, stdin = pty.openpty()
    process = await start("dlq", "drop", "--all", env={"NATS_URL": nats_url}, stdin=stdin)
    assert process.stderr
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        assert b"Delete 2 dead letters?" in await process.stderr.readuntil(b"?")
    process.send_signal(signal.SIGINT)
    found = await ended(process)
    os.close(terminal)
    os.close(stdin)
    assert (found.code, found.out) == (130, "")
    assert len([letter async for letter in bus.dead_letters.list()]) == 2


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", long_after(1, CODES), ids=lambda number: number.name)
async def test_a_signal_to_the_command_alone_ends_the_programs_that_it_runs(
    tmp_path: Path, number: signal.Signals
) -> None:
    record_log(tmp_path)
    process = await start("dev", "logs", "service", "-f", env={"PADDLEWHEEL_HOME": str(tmp_path)})
    assert await first_line(process) == "a line\n"
    [tail] = children_of(process.pid)
    process.send_signal(number)
    found = await ended(process)
    assert (found.code, found.err.count("\n")) == (CODES[number], 1)
    assert not runs(tail)


@pytest.mark.long
async def test_a_log_that_is_followed_ends_quietly_when_its_reader_leaves(tmp_path: Path) -> None:
    record_log(tmp_path)
    process = await start("dev", "logs", "service", "-f", env={"PADDLEWHEEL_HOME": str(tmp_path)})
    await first_line(process)
    close_output(process)
    with (tmp_path / "dev" / "service.log").open("a") as log:
        log.write("another\n")
    found = await end_of(process)
    assert (found.code, found.err) == (CLOSED_PIPE, "")


KUBECTL = """#!/bin/sh
case "$*" in
*configmaps/bus-ca*) cat "{folder}/authority.json" ;;
*"create token"*) echo x ;;
*port-forward*) echo $$ > "{folder}/pid"; echo "Forwarding from 127.0.0.1:{port} -> 4222"; exec sleep 1000 ;;
*) exit 1 ;;
esac
"""


@dataclass(frozen=True)
class ForwardedBus:
    """The bus of a cluster: the chart's server behind a scripted kubectl, whose token is the password."""

    bus: ChartBus
    folder: Path

    @property
    def kubectl(self) -> Path:
        return self.folder / "kubectl"

    @property
    def forward(self) -> int:
        """Process id of the port-forward."""
        return int((self.folder / "pid").read_text())

    @property
    def env(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.folder / "kubeconfig"), "XDG_RUNTIME_DIR": str(self.folder)}

    @property
    def secrets(self) -> list[Path]:
        """Every borrowed file on this machine."""
        return [path for path in (self.folder / "paddlewheel").rglob("*") if path.name in ("ca.crt", "token")]

    async def follow(self) -> Process:
        """`paddlewheel events`, connected and with a fact printed."""
        process = await start("events", "-A", "--since", "all", env=self.env, tool=self.kubectl)
        line = await first_line(process)
        assert "jobs.job.gated" in line, await ended(process)
        return process


@pytest.fixture
async def forwarded(tmp_path: Path) -> AsyncIterator[ForwardedBus]:
    with running(tmp_path / "bus") as bus:
        await install(bus)
        made = ForwardedBus(bus, tmp_path)
        made.kubectl.write_text(KUBECTL.format(folder=tmp_path, port=bus.port))
        made.kubectl.chmod(0o755)
        files = {path.name: path.read_text() for path in bus.authority.iterdir()}
        (tmp_path / "authority.json").write_text(json.dumps({"data": files}))
        (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
        service = await connect(bus.access("job-controller"), name="job-controller")
        await service.publish(make_gated(1))
        await service.close()
        yield made


KUBECONFIG = {
    "current-context": "test",
    "contexts": [{"name": "test", "context": {"cluster": "test"}}],
    "clusters": [{"name": "test", "cluster": {"server": "https://127.0.0.1:1"}}],
}


@pytest.mark.parametrize("number", long_after(1, CODES), ids=lambda number: number.name)
async def test_neither_key_nor_port_forward_outlives_a_signal(
    forwarded: ForwardedBus, number: signal.Signals
) -> None:
    process = await forwarded.follow()
    forward = forwarded.forward
    assert runs(forward)
    assert [path.parent.stat().st_mode & 0o777 for path in forwarded.secrets] == [0o700, 0o700]
    process.send_signal(number)
    found = await ended(process)
    assert (found.code, found.err.count("\n")) == (CODES[number], 1)
    assert found.err.startswith(f"{WORDS[number]}: ")
    assert forwarded.secrets == []
    assert not runs(forward)


@pytest.mark.long
async def test_neither_key_nor_port_forward_outlives_a_closed_pipe(forwarded: ForwardedBus) -> None:
    process = await forwarded.follow()
    forward = forwarded.forward
    close_output(process)
    found = await end_of(process)
    assert (found.code, found.err) == (CLOSED_PIPE, "")
    assert forwarded.secrets == []
    assert not runs(forward)


@pytest.mark.long
async def test_ctrl_c_in_a_terminal_reaches_the_port_forward_last(forwarded: ForwardedBus) -> None:
    """The terminal signals the whole process group; the forward is not in it, and is ended by the command."""
    process = await forwarded.follow()
    assert os.getsid(forwarded.forward) != os.getsid(process.pid)
    process.terminate()
    assert (await ended(process)).code == CODES[signal.SIGTERM]


async def test_kill_9_leaves_no_port_forward_and_the_next_command_removes_the_key(
    forwarded: ForwardedBus,
) -> None:
    process = await forwarded.follow()
    forward = forwarded.forward
    other = await forwarded.follow()
    process.kill()
    await process.wait()
    await eventually(lambda: not runs(forward), within=COMMAND_TIMEOUT_SECONDS)
    left = len(forwarded.secrets)
    again = await run(
        "events", "-A", "--no-follow", "--since", "all", env=forwarded.env, tool=forwarded.kubectl
    )
    assert "jobs.job.gated" in again.out
    assert (left, len(forwarded.secrets)) == (4, 2), "those of the process that runs are kept"
    other.terminate()
    await ended(other)
    assert forwarded.secrets == []
