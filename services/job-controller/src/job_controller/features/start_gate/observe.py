"""Notices how long gates have had nothing to wait for."""

from __future__ import annotations

from dataclasses import replace

from job_controller.core.model import Observed
from job_controller.features.start_gate.rules import open_gates
from job_controller.reading import Reader
from job_controller.sightings import Sightings
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock


class OpenGates(Reader):
    """Remembers since when each gate could open. After a restart, these times begin again."""

    def __init__(self, clock: Clock) -> None:
        self._since = Sightings(clock)

    def cached(self, seen: Observed) -> Observed:
        at_gates = {pod.uid for pod in open_gates(seen)} if not seen.status.final else set[str]()
        return replace(seen, gates_open_since=self._since.of(seen.job.uid, at_gates))

    def forget(self, key: Key, job_uid: str) -> None:
        self._since.forget(job_uid)
