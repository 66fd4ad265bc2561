"""The functions of the package: one reporter for each process, made at its first report."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Mapping

from paddlewheel_progress.reporter import Reporter

URL = "PADDLEWHEEL_PROGRESS_URL"
TOKEN = "PADDLEWHEEL_PROGRESS_TOKEN"  # noqa: S105 - a variable's name
EXIT_TIMEOUT_SECONDS = 2.0
"""The last values get this time at the end of the program."""

_lock = threading.RLock()
"""A signal handler may report while the thread that it has interrupted holds it."""
_reporter: Reporter | None = None
_made_in = 0


def report(
    step: float | None = None,
    total_steps: float | None = None,
    epoch: float | None = None,
    total_epochs: float | None = None,
    loss: float | None = None,
    samples_per_second: float | None = None,
    **metrics: float,
) -> None:
    """Report the progress of the training; returns at once and never raises.

    A value that is left out keeps its last number. Only rank 0 of the workers reports; other processes do
    nothing.

    Args:
        step: steps done, counted over the whole training, not within an epoch.
        epoch: epochs done.
        loss: a number; a tensor is not read, since that may wait for the device: pass `float(loss)`.
        samples_per_second: the rate of all workers together.
        metrics: up to 32 further numbers, named with letters, digits and `_`, `.`, `/`, `-`.
    """
    reporter = _current()
    if reporter is not None:
        reporter.report(step, total_steps, epoch, total_epochs, loss, samples_per_second, **metrics)


def flush(timeout: float = EXIT_TIMEOUT_SECONDS) -> None:
    """Wait until the newest values are sent, `timeout` seconds at most; runs by itself at the end."""
    if _reporter is not None and _made_in == os.getpid():
        _reporter.flush(timeout)


def from_environment(environment: Mapping[str, str]) -> Reporter | None:
    """The reporter of this process; None where nothing is to be reported."""
    url = environment.get(URL, "")
    rank = environment.get("PADDLE_TRAINER_ID") or "0"
    role = environment.get("TRAINING_ROLE") or "TRAINER"
    if not url or rank != "0" or role != "TRAINER":
        return None
    return Reporter(url, environment.get(TOKEN, ""))


def _current() -> Reporter | None:
    """A forked process has its parent's objects, but none of its threads, and its own rank."""
    global _reporter, _made_in
    if _made_in == os.getpid():
        return _reporter
    with _lock:
        if _made_in != os.getpid():
            _reporter = _made(os.environ)
            _made_in = os.getpid()
    return _reporter


def _made(environment: Mapping[str, str]) -> Reporter | None:
    reporter = from_environment(environment)
    if reporter is not None:
        atexit.register(flush)
    return reporter


def _after_fork() -> None:
    """The lock may have been held by a thread that the child does not have."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
