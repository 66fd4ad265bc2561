"""Where borrowed secrets are kept, and that they do not outlive their process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddlewheel.cli.private import private_folder
from paddlewheel.core.errors import Permanent

HOLD = """
import sys
from paddlewheel.cli.private import private_folder
with private_folder() as folder:
    (folder / "tls.key").write_text("secret")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path / "home"))
    return folder


def test_a_folder_is_private_and_gone_after_its_block(runtime: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == runtime / "paddlewheel"
        assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    assert not folder.exists()


def test_a_folder_is_gone_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError), private_folder() as folder:
        raise ZeroDivisionError
    assert not folder.exists()


def test_without_a_runtime_directory_it_is_in_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with private_folder() as folder:
        assert folder.is_relative_to(tmp_path / "home")


def test_the_runtime_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only root could give a directory away, and the test shall run for everybody.
    another = os.geteuid() + 1
    monkeypatch.setattr("paddlewheel.cli.private.os.geteuid", lambda: another)
    with private_folder() as folder:
        assert folder.is_relative_to(tmp_path / "home")


def test_a_directory_that_cannot_be_made_is_an_error_with_the_variable_to_set(
    runtime: Path,
) -> None:
    (runtime / "paddlewheel").write_text("a file")
    with (
        pytest.raises(Permanent, match=r"^NoPrivateFolder: .*/runtime/paddlewheel: .*set XDG_RUNTIME_DIR"),
        private_folder(),
    ):
        pass


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_others_hold_is_kept() -> None:
    killed, alive = hold(), hold()
    left, held = first_line(killed), first_line(alive)
    killed.kill()
    killed.communicate()
    assert (left / "tls.key").exists()
    with private_folder() as own:
        assert not left.exists()
        assert (held / "tls.key").exists()
        assert own.exists()
    alive.communicate()
    assert not held.exists()


def hold() -> subprocess.Popen[str]:
    """A process that has a private folder until its standard input is closed."""
    command = [sys.executable, "-c", HOLD]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> Path:
    assert process.stdout
    return Path(process.stdout.readline().strip())


def test_a_folder_is_removed_under_the_lock_that_sweeping_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    was_locked: list[bool] = []

    def remove(folder: Path, ignore_errors: bool) -> None:
        with (folder.parent / ".lock").open() as guard, pytest.raises(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        was_locked.append(True)

    with private_folder():
        monkeypatch.setattr("paddlewheel.cli.private.shutil.rmtree", remove)
    assert was_locked == [True]
