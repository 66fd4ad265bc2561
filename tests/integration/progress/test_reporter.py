"""The library for training scripts over real connections: it neither holds a training up nor fails it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import paddlewheel_progress
from paddlewheel.testkit.wait import eventually
from paddlewheel_progress import Reporter

SOURCES = Path(paddlewheel_progress.__file__).parent.parent
TOKEN = "0f" * 32
REPORTER_TIMEOUT_SECONDS = 90.0
"""Seconds until a test fails."""


class Receiver:
    """An HTTP server that answers `status`, and not before `gate` is open."""

    def __init__(self) -> None:
        self.status = 204
        self.gate = threading.Event()
        self.gate.set()
        self.bodies: list[Mapping[str, Any]] = []
        self.tokens: set[str] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.tokens.add(self.headers["Authorization"])
                receiver.bodies.append(json.loads(body))
                receiver.gate.wait(REPORTER_TIMEOUT_SECONDS)
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/progress/uid-1"

    @property
    def steps(self) -> list[int]:
        return [body["step"] for body in self.bodies]

    def has(self, step: int) -> bool:
        return step in self.steps


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with running(made.server):
        yield made
        made.gate.set()


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(script: str, url: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A training script in a process of its own."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCES),
        "PADDLEWHEEL_PROGRESS_URL": url,
        "PADDLEWHEEL_PROGRESS_TOKEN": TOKEN,
        **environment,
    }
    command = [sys.executable, *options, "-c", f"import paddlewheel_progress as progress\n{script}"]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=REPORTER_TIMEOUT_SECONDS, check=False
    )


async def test_reports_during_a_request_replace_each_other(receiver: Receiver) -> None:
    receiver.gate.clear()
    reporter = Reporter(receiver.url, TOKEN, interval=0.01)
    reporter.report(step=1, total_steps=1000)
    await eventually(lambda: receiver.steps == [1], what="the first request")

    for step in range(2, 1001):
        reporter.report(step=step)
    assert receiver.steps == [1]

    receiver.gate.set()
    assert reporter.flush(REPORTER_TIMEOUT_SECONDS)
    assert receiver.steps == [1, 1000]
    assert receiver.bodies[-1]["total_steps"] == 1000
    assert receiver.tokens == {f"Bearer {TOKEN}"}


async def test_nothing_is_sent_again_while_nothing_is_reported(receiver: Receiver) -> None:
    reporter = Reporter(receiver.url, TOKEN, interval=0.01)
    for step in (1, 2, 3):
        reporter.report(step=step)
        assert reporter.flush(REPORTER_TIMEOUT_SECONDS)

    assert receiver.steps == [1, 2, 3]


async def test_a_server_that_hangs_holds_up_neither_reports_nor_the_end(receiver: Receiver) -> None:
    receiver.gate.clear()

    ended = run("for step in range(1000): progress.report(step=step)\nprint('trained')", receiver.url)

    assert not receiver.gate.is_set()
    assert (ended.returncode, ended.stdout) == (0, "trained\n")
    reporter = Reporter(receiver.url, TOKEN)
    reporter.report(step=1)
    assert not reporter.flush(0.05)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/v1/progress/uid-1",
        "no address",
        "http://[::1",
        "ftp://x:y",
    ],
)
def test_a_wrong_address_is_warned_of_once_and_training_goes_on(url: str) -> None:
    script = "for step in range(3): progress.report(step=step); progress.flush(1)\nprint('trained')"

    ended = run(script, url)

    assert (ended.returncode, ended.stdout) == (0, "trained\n")
    assert ended.stderr.count("progress is not reported in full, training goes on") == 1
    assert TOKEN not in ended.stderr


async def test_a_refusal_is_warned_of_once_without_the_token(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 403
    reporter = Reporter(receiver.url, TOKEN, interval=0.01)
    with caplog.at_level(logging.DEBUG):
        for step in (1, 2, 3):
            reporter.report(step=step)
            await eventually(partial(receiver.has, step), what=f"the request of step {step}")
        assert not reporter.flush(0.05)

    (warned,) = [record.getMessage() for record in caplog.records]
    assert "403" in warned
    assert TOKEN not in warned


async def test_once_the_job_has_ended_nothing_more_is_sent(receiver: Receiver) -> None:
    receiver.status = 410
    reporter = Reporter(receiver.url, TOKEN, interval=0.01)
    reporter.report(step=1)
    assert reporter.flush(REPORTER_TIMEOUT_SECONDS)

    reporter.report(step=2)

    assert reporter.flush(REPORTER_TIMEOUT_SECONDS)
    assert receiver.steps == [1]


def test_what_is_no_number_never_fails_a_training() -> None:
    class Strange:
        def __float__(self) -> float:
            raise AssertionError("read")

    Reporter("http://127.0.0.1:1/", TOKEN).report(step=Strange(), loss=Strange())  # type: ignore[arg-type]


def test_the_last_values_are_sent_when_the_program_ends(receiver: Receiver) -> None:
    ended = run("progress.report(step=1)\nprogress.report(step=2, loss=0.25)", receiver.url)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert receiver.steps[-1] == 2
    assert receiver.bodies[-1]["loss"] == 0.25


def test_neither_other_libraries_nor_proxies_are_needed(receiver: Receiver) -> None:
    ended = run("progress.report(step=1)", receiver.url, "-S", http_proxy="http://127.0.0.1:1")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert receiver.steps == [1]


def test_a_forked_process_reports_by_itself(receiver: Receiver) -> None:
    script = (
        "import os\n"
        "progress.report(step=1)\n"
        "progress.flush(30)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    progress.report(step=2)\n"
        "    progress.flush(30)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )

    assert run(script, receiver.url).returncode == 0
    assert receiver.steps == [1, 2]


def test_without_the_variable_there_is_no_thread_and_no_request(receiver: Receiver) -> None:
    script = "import threading\nprogress.report(step=1)\nprint(threading.active_count())"

    ended = run(script, "")

    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert receiver.bodies == []
