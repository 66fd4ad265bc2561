"""Runs one program of an image build, isolated from the host's mounts and killed with its parent."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.commands import ending_with_us

REQUIRED_TOOLS: Mapping[str, str] = {
    "buildah": "apt-get install buildah",
    "mmdebstrap": "apt-get install mmdebstrap",
    "setpriv": "apt-get install util-linux",
    "unshare": "apt-get install util-linux",
}
"""Program -> the command that installs it."""

_LOG_TAIL = 30
"""Lines of a failed program's log that are included in the error."""

_APART = (
    *ending_with_us(),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
"""New mount and PID namespaces: whatever is killed, no mount and no process is left behind."""


def check_tools() -> None:
    """Fail early if a program is missing on the machine.

    Raises:
        Permanent: names the first missing program and the command that installs it.
    """
    for program, remedy in REQUIRED_TOOLS.items():
        if shutil.which(program) is None:
            raise Permanent("MissingProgram", f"{program} is not installed: {remedy}")


def run_apart(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a program in new namespaces, its output appended to `log`; returns its standard output.

    Raises:
        Permanent: the program failed; the message contains the end of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        ended = subprocess.run(
            (*_APART, *command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            env={**os.environ, **(env or {})},
            text=True,
            check=False,
        )
        out.write(ended.stdout)
    if ended.returncode == 0:
        return ended.stdout
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
    raise Permanent("ImageBuildFailed", f"{command[0]} exited with {ended.returncode}, log {log}:\n{tail}")
