"""Commands that the documentation shows, and running them as a reader would: in one shell per page."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from paddlewheel.testkit.checkout import copy_checkout

ROOT = Path(__file__).resolve().parents[3]
PROMPT = "$ "
ELSEWHERE: Mapping[str, str] = {
    "make demo": "the fixture `paddlewheel_cluster` and tests/e2e/test_digits.py: the same stages",
    "paddlewheel cluster up --with gateway": "tests/e2e/devcluster/test_addons.py",
    "paddlewheel cluster up --with knative": "tests/e2e/devcluster/test_addons.py",
}
"""Commands that run elsewhere, and where."""
_PAGE_TIMEOUT_SECONDS = 900.0
_MARK = "@@ next command: "


@dataclass(frozen=True)
class Page:
    """A page and its commands, in order."""

    path: str
    commands: tuple[str, ...]

    @property
    def here(self) -> tuple[str, ...]:
        """Commands that its test runs."""
        return tuple(command for command in self.commands if command not in ELSEWHERE)


def read_pages() -> dict[str, Page]:
    """Every page of the repository that shows commands, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pages = (Page(path, tuple(_commands(ROOT / path))) for path in listed.stdout.split())
    return {page.path: page for page in pages if page.commands}


def _commands(path: Path) -> Iterator[str]:
    for token in MarkdownIt().parse(path.read_text()):
        if token.type == "fence" and token.info.split()[:1] == ["console"]:
            lines = token.content.replace("\\\n", "").splitlines()
            yield from (_bare(line.removeprefix(PROMPT)) for line in lines if line.startswith(PROMPT))


def _bare(command: str) -> str:
    """Without the comment that a reader sees."""
    return " ".join(command.partition("  #")[0].split()) if "  #" in command else command.strip()


def checkout(folder: Path) -> Path:
    """A copy of the checkout, with this one's environment."""
    copy_checkout(ROOT, folder)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def run(page: Page, folder: Path, environment: Mapping[str, str]) -> str:
    """Run the commands of the page and return their output; fail with it at the first command that fails."""
    script = "\n".join(f"echo {_MARK}{number}\n{command}" for number, command in enumerate(page.here))
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=_PAGE_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    last = int(printed.rpartition(_MARK)[2].partition("\n")[0])
    assert process.returncode == 0, f"{page.path}: `{page.here[last]}` failed\n{printed[-4000:]}"
    return printed
