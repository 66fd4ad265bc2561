"""Pods as this process last saw them: when their programs ended, and the pods that are gone.

A pass may come after both a pod's end and its deletion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from job_controller.core import names
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.parse import has_ended, recorded_epoch
from job_controller.core.parse_pod import has_ended_program, parse_pod
from job_controller.core.pods import ENDED, Pod, PodId, PodState
from job_controller.reading import Reader
from job_controller.watch import BY_UID, JOB
from paddlewheel.contracts.objects import status_of
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_uid, key_of, uid_of
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


class Endings(Reader):
    """Parses pods. A pod that had ended before its deletion was asked for has ended by itself.

    The time of an end is when this process saw it, since the clocks of nodes may be wrong.

    After a restart, the time that the node gives for an end counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parse: Memo[Pod | None] = Memo(parse_pod)
        self._seen: dict[str, _Ending] = {}

    def heard(self, kind: str, change: Change) -> None:
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


class Departures(Reader):
    """The last pod of each place of the jobs that have not ended, until the status lists it no longer, or its
    loss is counted.

    After a restart, a pod that the status lists and that is not there counts as deleted, without its cause.

    Args:
        jobs: watched.
        parse: a raw pod.
    """

    def __init__(self, jobs: Informer, parse: Callable[[Object], Pod | None] = parse_pod) -> None:
        self._jobs = jobs
        self._parse = parse
        self._gone: defaultdict[str, dict[PodId, _Departed]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._gone.values()))

    def of(self, job_uid: str) -> tuple[Pod, ...]:
        """The pods, in no particular order."""
        job, found = self._job(job_uid), self._gone.get(job_uid, {}).values()
        return tuple(departed.pod for departed in found if job is None or departed.reviewed(job))

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        """It counts the losses of the pods that it replaces."""
        found = self._gone.get(seen.job.uid, {})
        for place in [place for place, departed in found.items() if departed.pod.uid in status.replacing]:
            del found[place]

    def heard(self, kind: str, change: Change) -> None:
        if kind == JOB:
            self._review(change)
        if kind == names.POD and change.type == "DELETED":
            self._remember(change.obj)

    def _review(self, change: Change) -> None:
        uid = uid_of(change.obj)
        # What was written since counts: the notification may be of an earlier version.
        job = self._job(uid) or change.obj
        is_over = change.type == "DELETED" or has_ended(change.obj)
        found = {} if is_over else self._gone.get(uid, {})
        reviewed = {place: departed.reviewed(job) for place, departed in found.items()}
        kept = {place: departed for place, departed in reviewed.items() if departed}
        if kept:
            self._gone[uid] = kept
        else:
            self._gone.pop(uid, None)

    def _remember(self, obj: Object) -> None:
        """Unless its job deleted it: for a new epoch, or at its end."""
        pod = self._parse(obj)
        for uid in controller_uid(obj):
            job = self._job(uid)
            if job and key_of(job).namespace != key_of(obj).namespace:
                continue
            departed = _Departed(pod, was_listed=False).reviewed(job) if pod and job else None
            if departed and job and departed.pod.uid in (status_of(job).get("replacing") or ()):
                continue
            if departed and job and not has_ended(job):
                self._gone[uid][departed.pod.id] = departed

    def _job(self, uid: str) -> Object | None:
        return next(iter(self._jobs.by_index(BY_UID, uid)), None)


@dataclass(frozen=True)
class _Departed:
    """A pod that is gone; `was_listed`: by the status, which a pass that is late may do after its end."""

    pod: Pod
    was_listed: bool

    def reviewed(self, job: Object) -> _Departed | None:
        """The same by the job's present status, None when it need not be remembered."""
        is_listed = any(ref.get("uid") == self.pod.uid for ref in _refs(job, self.pod.id.role))
        is_former = self.pod.epoch < recorded_epoch(job)
        if is_former or (self.was_listed and not is_listed):
            return None
        return replace(self, was_listed=is_listed)


def _refs(job: Object, role: str) -> Iterable[Mapping[str, Any]]:
    return (status_of(job).get(role) or {}).get("refs") or ()
