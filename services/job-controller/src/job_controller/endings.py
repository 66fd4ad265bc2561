"""When this process saw the programs of pods end, by its own clock: those of nodes may be wrong.

A program may end while this process is away, as before its start. Then the time that its node gives counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.pods import ENDED, Pod, PodState, has_ended_program, parse_pod
from paddlewheel.core.clock import Clock
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Change, Object
from paddlewheel.operator.memo import Memo


@dataclass(frozen=True)
class _Ending:
    """The first sight of a pod's end.

    Args:
        pod: at that time.
        seen_at: on the monotonic clock.
        was_seen: the watch reported the end. Else a list did, maybe long after it.
    """

    pod: Pod
    seen_at: float
    was_seen: bool


class Endings:
    """Parses pods. A pod that had ended when its deletion was not asked for yet has ended by itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parse: Memo[Pod | None] = Memo(parse_pod)
        self._seen: dict[str, _Ending] = {}

    def heard(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        if kind != names.POD:
            return
        if change.type == "DELETED":
            self._parse.forget(change.obj)
            self._seen.pop(uid_of(change.obj), None)
        elif has_ended_program(change.obj):
            self._take_in(change.obj, was_seen=not change.listed)

    def parse(self, raw: Object) -> Pod | None:
        """The pod with what was seen of its end before; None when it is no pod of a job."""
        return self._take_in(raw, was_seen=True)

    def _take_in(self, raw: Object, was_seen: bool) -> Pod | None:
        pod = self._parse(raw)
        if pod is None:
            return None
        ending = self._seen.get(pod.uid)
        if ending is None and (pod.state in ENDED or pod.program_end):
            ending = self._seen[pod.uid] = _Ending(pod, self._clock.monotonic(), was_seen)
        return pod if ending is None else self._with_end(pod, ending)

    def _with_end(self, pod: Pod, ending: _Ending) -> Pod:
        end = pod.program_end
        pod = replace(pod, end_seen_at=self._end_time(pod, ending))
        if not pod.terminating or pod.state in ENDED or (end and end.state is PodState.FAILED):
            return pod
        before = ending.pod
        if before.state in ENDED:
            return replace(pod, state=before.state, failure=before.failure)
        has_succeeded = before.program_end is not None and before.program_end.state is PodState.SUCCEEDED
        return replace(pod, state=PodState.SUCCEEDED) if has_succeeded else pod

    def _end_time(self, pod: Pod, ending: _Ending) -> datetime | None:
        seen = self._clock.now() - timedelta(seconds=self._clock.monotonic() - ending.seen_at)
        if ending.was_seen:
            return seen
        ended = pod.reported_end
        return min(ended, seen) if ended else None
