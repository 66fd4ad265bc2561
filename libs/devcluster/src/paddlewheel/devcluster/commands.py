"""Runs tools of the machine and tools from Python wheels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddlewheel.core.errors import Permanent

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
"""Environment of a cluster's processes: without the caller's proxy and KUBECONFIG."""


def ending_with_us(signal: str = "KILL") -> tuple[str, ...]:
    """The prefix of a command line whose program gets this signal when our process ends, even by `kill -9`.

    The kernel sends the signal when the thread that started the program ends, so the thread must outlive the
    program.
    """
    return ("setpriv", "--pdeathsig", signal)


def tool(name: str) -> str:
    """Path of a program: the one beside our Python first, then PATH.

    Raises:
        Permanent: there is no such program; the message describes how to install it.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise Permanent(
            "ToolMissing", f"{name} is not installed; run `make venv` or `paddlewheel doctor --fix`"
        )
    return found


def run(argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 60.0) -> str:
    """Run a command and return its output.

    Raises:
        Permanent: CommandFailed with the command and its output, MissingTool when it is not installed.
    """
    try:
        done = subprocess.run(
            argv,
            env=env or CLEAN_ENVIRONMENT,
            timeout=timeout,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise Permanent(
            "MissingTool", f"{argv[0]} is not installed; `paddlewheel doctor` shows how to install it"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Permanent("CommandFailed", f"{' '.join(argv)} exited with {done.returncode}: {said}")
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Run a command whose failure is a result, not an error."""
    return (
        subprocess.run(argv, env=CLEAN_ENVIRONMENT, capture_output=True, stdin=subprocess.DEVNULL).returncode
        == 0
    )
