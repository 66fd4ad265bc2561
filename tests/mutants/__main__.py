"""`make mutants`: mutmut changes the pure code in small ways; the score is the share that unit tests notice.

Packages and the goal are listed in tests/mutants.toml. mutmut expects one source folder and one project file.
Each package therefore has a workspace, build/mutants/NAME: copies of its source folder and of its unit tests.
The copy comes first on the path; the rest of `paddlewheel` is imported from the tree.
`cd build/mutants/NAME && mutmut show MUTANT` prints a survivor.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[2]
WORKSPACES = ROOT / "build" / "mutants"
CONFTESTS = ("tests/conftest.py", "tests/unit/conftest.py")
LINKED = ("deploy", "docs", "examples", "protos")
"""Folders that tests read."""
PROJECT = r"""
[tool.mutmut]
source_paths = ["src"]
only_mutate = {mutate}
do_not_mutate_patterns = ['^\s*log\.(debug|info|warning|error|exception)\(']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["--hypothesis-seed=0", "-m", "not long and not slow"]
timeout_multiplier = 10.0
timeout_constant = 5.0
track_dependencies = false
use_git_change_detection = false

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
pythonpath = ["."]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
filterwarnings = ["error"]
markers = ["long", "slow"]
"""


def main(only: Annotated[str, typer.Option(help="Packages, separated by commas.")] = "") -> None:
    """Exit code 1 when a package does not reach the goal."""
    config = tomllib.loads((ROOT / "tests/mutants.toml").read_text())
    names = only.split(",") if only else list(config["packages"])
    if unknown := [name for name in names if name not in config["packages"]]:
        known = ", ".join(config["packages"])
        raise typer.BadParameter(f"no package {', '.join(unknown)}; there are: {known}", param_hint="--only")
    found = {name: run(make_workspace(name, config["packages"][name])) for name in names}
    for name, stats in found.items():
        typer.echo(f"{name:<24} {describe(stats)} >= {config['goal']:g} %")
    if any(score(stats) < config["goal"] for stats in found.values()):
        raise typer.Exit(1)


def make_workspace(name: str, package: dict[str, Any]) -> Path:
    """Make the workspace of a package from scratch; `package` is its table of mutants.toml."""
    folder = WORKSPACES / name
    shutil.rmtree(folder, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / package["source"], folder / "src", ignore=ignore)
    for path in (*CONFTESTS, *package["tests"], *package.get("helpers", ())):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, target, ignore=ignore, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / path, target)
    (folder / "mutants").mkdir()
    for path in LINKED:
        (folder / "mutants" / path).symlink_to(ROOT / path)
    mutate = json.dumps([f"src/{pattern}" for pattern in package["mutate"]])
    (folder / "pyproject.toml").write_text(PROJECT.format(mutate=mutate, tests=json.dumps(package["tests"])))
    return folder


def run(folder: Path) -> dict[str, int]:
    """mutmut's counts; prints the survivors. Exits when the tests fail without any mutant."""
    typer.echo(f"{folder.name}: mutmut writes to {folder / 'mutmut.log'}")
    with (folder / "mutmut.log").open("wb") as log:
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1)]
        if subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False).returncode:
            raise typer.Exit(1)
    for report in ("results", "export-cicd-stats"):
        subprocess.run([sys.executable, "-m", "mutmut", report], cwd=folder, check=True)
    stats: dict[str, int] = json.loads((folder / "mutants/mutmut-cicd-stats.json").read_text())
    return stats


def killed(stats: dict[str, int]) -> int:
    return stats["killed"] + stats["timeout"] + stats["segfault"]


def score(stats: dict[str, int]) -> float:
    """Percent; 0 when nothing was mutated."""
    return 100 * killed(stats) / max(1, stats["total"] - stats["skipped"])


def describe(stats: dict[str, int]) -> str:
    mutants = stats["total"] - stats["skipped"]
    return f"{mutants:>5} mutants {killed(stats):>5} killed {score(stats):>6.1f} %"


typer.run(main)
