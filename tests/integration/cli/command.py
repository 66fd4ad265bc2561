"""The command as a process of its own, as users and scripts run it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

COMMAND_TIMEOUT_SECONDS = 90.0
OWN_SIGNALS = ("env", "--default-signal=INT,HUP,TERM")
"""What starts the tests, `nohup` or a shell's `&`, may ignore signals, and a child would inherit that."""
_VARIABLES = (
    "KUBECONFIG", "PADDLEWHEEL_CLUSTER", "NATS_URL", "NATS_TLS_DIR", "NATS_TLS_HOSTNAME", "NATS_CREDS",
    "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Nothing of the machine's own clusters and buses is touched."""
_SCRIPTED = """
import sys
from paddlewheel.cli import tools
kubectl = sys.argv.pop(1)
tools.tool = lambda name: kubectl
from paddlewheel.cli.main import main
main()
"""


@dataclass(frozen=True)
class Ended:
    """A command's end."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


async def start(
    *arguments: str,
    env: Mapping[str, str],
    tool: Path | None = None,
    ignore: str = "",
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
) -> Process:
    """Start `paddlewheel <arguments>`.

    Args:
        env: variables in addition to those of this process.
        tool: a program that it runs in the place of kubectl.
        ignore: a signal that it ignores from its start, such as INT.
    """
    clean = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    plain = (str(Path(sys.executable).parent / "paddlewheel"),)
    program = (sys.executable, "-c", _SCRIPTED, str(tool)) if tool else plain
    return await asyncio.create_subprocess_exec(
        *(("env", f"--ignore-signal={ignore}") if ignore else OWN_SIGNALS),
        *program,
        *arguments,
        env=clean | dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


async def ended(process: Process) -> Ended:
    """Wait for its end."""
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        out, err = await process.communicate()
    return Ended(process.returncode or 0, (out or b"").decode(), (err or b"").decode())


async def run(*arguments: str, env: Mapping[str, str], tool: Path | None = None) -> Ended:
    """Run it to its end."""
    return await ended(await start(*arguments, env=env, tool=tool))
