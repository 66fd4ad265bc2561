"""Ends a command on a signal or a closed pipe, with the exit code that a shell expects."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from paddlewheel.cli.processes import descendants

CLOSED_PIPE = 128 + signal.SIGPIPE
INTERRUPTED = 128 + signal.SIGINT
WORDS = {INTERRUPTED: "interrupted", 128 + signal.SIGTERM: "terminated", 128 + signal.SIGHUP: "hung up"}
"""The word that is printed for each exit code. A closed pipe has none."""

_KILL_TIMEOUT_SECONDS = 5.0
"""A process that is stuck in the kernel takes longer."""
_why = 0
"""The exit code of the first reason to end early; 0 while there is none."""


def run(command: Callable[[], object]) -> int:
    """Run a command in this process and return its exit code.

    SIGTERM, SIGHUP and a reader that exits end it as Ctrl-C does: by a KeyboardInterrupt, or, inside
    `asyncio.run`, by cancelling the main task. So a command releases its resources in one way.
    """
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` ignores SIGHUP on purpose.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores it for background commands. Blocking has the same effect, and works with asyncio.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = _code_of(command)
    code = _code_of(sys.stdout.flush) or code
    return _why or code


def leave(code: int) -> None:
    """End the process. After a signal, do not wait for threads, and kill all child processes."""
    if code not in (*WORDS, CLOSED_PIPE):
        raise SystemExit(code)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    deadline = time.monotonic() + _KILL_TIMEOUT_SECONDS
    while (left := descendants()) and time.monotonic() < deadline:
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(0.01)
    os._exit(code)


def end_early(code: int = CLOSED_PIPE) -> None:
    """End the command with this exit code; may be called from any thread."""
    global _why
    if not _why:
        _why = code
        os.kill(os.getpid(), signal.SIGTERM)


def _code_of(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _why
    _why = _why or 128 + number
    for pid in descendants():
        # A terminal sends Ctrl-C to all processes too.
        _send(pid, signal.SIGTERM)
    interrupt = signal.getsignal(signal.SIGINT)
    assert callable(interrupt)
    interrupt(signal.SIGINT, frame)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class _Stream(io.TextIOWrapper):
    """Standard output or error. When its reader exits, the next write ends the command."""

    def write(self, text: str) -> int:
        self._try(super().write, text)
        return len(text)

    def flush(self) -> None:
        self._try(super().flush)

    def _try(self, write: Callable[..., object], *text: str) -> None:
        try:
            write(*text)
        except BrokenPipeError:
            self._discard_the_rest()
            end_early()
        except OSError as error:
            self._discard_the_rest()
            os.write(2, f"error: cannot write the output: {error.strerror}\n".encode())
            end_early(1)

    def _discard_the_rest(self) -> None:
        """Send the buffered rest to /dev/null, so that it does not fail again."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def _watched(stream: Any) -> _Stream:
    """The same stream; Python has None for one that was closed from the start."""
    if stream is None:
        return _Stream(Path(os.devnull).open("wb"))
    options = {"encoding": stream.encoding, "errors": stream.errors, "line_buffering": stream.line_buffering}
    return _Stream(stream.buffer, **options)
