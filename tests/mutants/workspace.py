"""Running mutmut over one package of this workspace.

mutmut expects one source folder and one project file. A workspace below build/ has just that: a copy of the
package's source folder and of the tests that concern it. The copy comes first on the path; the rest of
`paddlewheel` is imported from the tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from tests.mutants.config import ROOT, Package
from tests.mutants.report import Survivor, lives, module_of, read_survivor

LINKED = ("deploy", "docs", "examples", "protos")
"""Folders that tests read."""
DIFFS = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({key: get_diff_for_mutant(key, path=path) for key, path in json.load(sys.stdin).items()}))
"""
PROJECT = r"""
[tool.mutmut]
source_paths = ["src"]
only_mutate = {mutate}
do_not_mutate_patterns = ['^\s*log\.(debug|info|warning|error|exception)\(']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["--hypothesis-seed=0"]
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
markers = ["long", "xdist_group"]
"""


class MutmutFailedError(Exception):
    """mutmut could not run; carries what it printed last."""


class Workspace:
    """The workspace of one package, made anew."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.folder = ROOT / "build" / "mutants" / package.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self._copy()

    @property
    def files(self) -> list[str]:
        """The mutated files, relative to the repository."""
        source = ROOT / self.package.source
        found = (str(path.relative_to(source)) for path in sorted(source.rglob("*.py")))
        chosen = (name for name in found if any(fnmatch(name, p) for p in self.package.mutate))
        return [f"{self.package.source}/{name}" for name in chosen]

    def run(self, within: float) -> None:
        """Test every mutant, on all cores.

        Args:
            within: seconds for all of it.

        Raises:
            MutmutFailedError: the tests fail without any mutant, or the time is over.
        """
        log = self.folder / "mutmut.log"
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1)]
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    command, cwd=self.folder, stdout=output, stderr=output, timeout=within, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise MutmutFailedError(f"not done within {within:g} s; see {log}") from error
        if done.returncode:
            raise MutmutFailedError(log.read_text(errors="replace").replace("\r", "\n")[-4000:])

    def statuses(self) -> dict[str, str]:
        """Each mutant's name and what became of it."""
        printed = self._mutmut("results", "--all", "true")
        pairs = (line.strip().partition(": ") for line in printed.splitlines() if ": " in line)
        return {key: status for key, _, status in pairs}

    def survivors(self, statuses: dict[str, str]) -> list[Survivor]:
        """Those that no test noticed, by file and line."""
        files = {_module(name, self.package.source): name for name in self.files}
        paths = {key: files[module_of(key)] for key, status in statuses.items() if lives(status)}
        inside = {key: f"src/{self._below_source(file)}" for key, file in paths.items()}
        done = subprocess.run(
            [sys.executable, "-c", DIFFS], cwd=self.folder, input=json.dumps(inside),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = [
            read_survivor(key, statuses[key], diff, paths[key], (ROOT / paths[key]).read_text())
            for key, diff in json.loads(done.stdout).items()
        ]
        return sorted(found, key=lambda s: (s.file, s.line))

    def _below_source(self, file: str) -> str:
        return file.removeprefix(f"{self.package.source}/")

    def _mutmut(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "mutmut", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def _copy(self) -> None:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / self.package.source, self.folder / "src", ignore=ignore)
        conftests = ("tests/conftest.py", "tests/unit/conftest.py")
        for name in (*conftests, *self.package.tests):
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=ignore, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / name, target)
        for name in LINKED:
            (self.folder / "mutants").mkdir(exist_ok=True)
            (self.folder / "mutants" / name).symlink_to(ROOT / name)
        mutate = json.dumps([f"src/{pattern}" for pattern in self.package.mutate])
        project = PROJECT.format(mutate=mutate, tests=json.dumps(list(self.package.tests)))
        (self.folder / "pyproject.toml").write_text(project)


def _module(file: str, source: str) -> str:
    name = str(Path(file).relative_to(source).with_suffix("")).replace("/", ".")
    return name.removesuffix(".__init__")
