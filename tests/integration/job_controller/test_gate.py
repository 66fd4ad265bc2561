"""The program before which pods wait, as it is built for the cluster; no name is looked up on the network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paddlewheel.devcluster.binaries import PAUSE, ensure
from paddlewheel.testkit.wait import eventually

KNOWN, NEVER = "127.0.0.1", "no..name"
"""An address resolves to itself, and what is no name to nothing: neither asks a server."""


@contextmanager
def gate(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = ensure((PAUSE,), lambda _message, _fraction: None).path("pause")
    with subprocess.Popen(["gate", *arguments], executable=program) as process:
        try:
            yield process
        finally:
            process.kill()


def is_told(path: Path, names: str) -> bool:
    """Whether somebody reads the pipe and was told the names."""
    with suppress(OSError):
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(pipe, f"{names}\n".encode()) > 0
        finally:
            os.close(pipe)
    return False


async def test_names_that_are_wanted_no_more_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "names"
    os.mkfifo(path)
    with gate("--resolve-all", str(path)) as process:
        for _ in range(3):
            await eventually(lambda: is_told(path, f"{KNOWN} {NEVER}"), what="the gate asks for its names")
        assert process.poll() is None

        def has_passed() -> bool:
            is_told(path, KNOWN)
            return process.poll() == 0

        await eventually(has_passed, what="the gate passes")


async def test_a_release_is_a_file_that_is_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "released"
    path.touch()
    with gate("--file", str(path)) as process:
        path.write_text("true")
        assert process.wait(30) == 0


@pytest.mark.parametrize("arguments", [(), ("--resolve-all",), ("--resolve", "a"), ("--file", "a", "b")])
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    with gate(*arguments) as process:
        assert process.wait(30) == 2
