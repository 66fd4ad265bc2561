"""Sends the newest values from a thread of its own, one request at a time."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator
from urllib.parse import urlsplit

from paddlewheel_progress.values import Values

REPORT_INTERVAL_SECONDS = 2.0
BACKOFF_MAX_INTERVAL_SECONDS = 60.0
"""After failures, the interval grows to this."""
REQUEST_TIMEOUT_SECONDS = 5.0
"""Each step of a request may take this time."""
ENDED = 410
"""The job has ended: do not report again."""

log = logging.getLogger("paddlewheel_progress")


class Reporter:
    """Reports to one address. Programs use `report` of the package; this is for a process of another rank.

    Args:
        url: the value of PADDLEWHEEL_PROGRESS_URL.
        token: the value of PADDLEWHEEL_PROGRESS_TOKEN.
        interval: seconds between two requests at least.
    """

    def __init__(self, url: str, token: str, interval: float = REPORT_INTERVAL_SECONDS) -> None:
        self._url = url
        self._token = token
        self._interval = interval
        self._pause = interval
        self._values = Values()
        self._lock = threading.Lock()
        self._inside: set[int] = set()
        self._thread: threading.Thread | None = None
        self._is_new = threading.Event()
        self._hurries = threading.Event()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._has_ended = False
        self._warned = False

    def report(
        self,
        /,
        step: float | None = None,
        total_steps: float | None = None,
        epoch: float | None = None,
        total_epochs: float | None = None,
        loss: float | None = None,
        samples_per_second: float | None = None,
        **metrics: float,
    ) -> None:
        """Report like `paddlewheel_progress.report`."""
        given = dict(
            metrics,
            step=step,
            total_steps=total_steps,
            epoch=epoch,
            total_epochs=total_epochs,
            loss=loss,
            samples_per_second=samples_per_second,
        )
        try:
            with self._entered() as is_first:
                if is_first:
                    self._take(given)
        except Exception as error:  # Training continues, whatever happens here.
            self._warn(f"{type(error).__name__}: {error}")

    def flush(self, timeout: float) -> bool:
        """Wait until the newest values are sent, `timeout` seconds at most. True when none is left."""
        if self._thread is None:
            return True
        with self._entered() as is_first:
            if not is_first:
                return False
            self._hurries.set()
            return self._is_idle.wait(timeout)

    @contextmanager
    def _entered(self) -> Iterator[bool]:
        """False in a signal handler that has interrupted this thread in here: it would wait for a lock that
        only the interrupted code releases."""
        thread = threading.get_ident()
        if thread in self._inside:
            yield False
            return
        self._inside.add(thread)
        try:
            yield True
        finally:
            self._inside.discard(thread)

    def _take(self, given: dict[str, Any]) -> None:
        with self._lock:
            if self._has_ended:
                return
            problem = self._values.take(time.monotonic(), given)
            self._is_idle.clear()
            self._is_new.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="paddlewheel-progress", daemon=True)
                self._thread.start()
        if problem:
            self._warn(problem)

    def _run(self) -> None:
        while not self._has_ended:
            self._is_new.wait()
            with self._lock:
                self._is_new.clear()
                body = self._values.body()
            self._settle(self._send(body))
            # `flush` waits for values that came in the meantime, but not for a second try.
            self._hurries.wait(self._pause)
            self._hurries.clear()

    def _settle(self, status: int) -> None:
        """After a request: how long to wait, and whether anything is left to be sent."""
        is_sent = 200 <= status < 300
        self._pause = self._interval if is_sent else min(BACKOFF_MAX_INTERVAL_SECONDS, 2 * self._pause)
        with self._lock:
            self._has_ended = status == ENDED
            if not is_sent:
                # The newest values then are sent, which may be these.
                self._is_new.set()
            if self._has_ended or not self._is_new.is_set():
                self._is_idle.set()

    def _send(self, body: dict[str, Any]) -> int:
        """The answer's status, 0 when there was none."""
        try:
            status, text = self._post(json.dumps(body, allow_nan=False).encode())
        except Exception as error:  # From http.client, the network, or a malformed URL.
            self._warn(f"{type(error).__name__}: {error}")
            return 0
        if not 200 <= status < 300 and status != ENDED:
            self._warn(f"{status} {text}")
        return status

    def _post(self, body: bytes) -> tuple[int, str]:
        # Not urllib.request: it would ask the proxy of the environment for an address of the cluster.
        url = urlsplit(self._url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=REQUEST_TIMEOUT_SECONDS)
        headers = {"Authorization": "Bearer " + self._token, "Content-Type": "application/json"}
        try:
            connection.request("POST", url.path or "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(500).decode("utf-8", "replace").strip()
        finally:
            connection.close()

    def _warn(self, problem: str) -> None:
        """Once: a training that runs for days must not fill its log."""
        if not self._warned:
            self._warned = True
            log.warning("progress is not reported in full, training goes on: %s", problem)
