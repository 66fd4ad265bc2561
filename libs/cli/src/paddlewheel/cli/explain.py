"""`paddlewheel job explain`: the reason for the state of a job, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from paddlewheel.cli.advice import SEE_MESSAGE, advice_for
from paddlewheel.cli.output import Format, print_foreign, print_json
from paddlewheel.contracts import conditions
from paddlewheel.contracts.crds import PaddleJobStatus
from paddlewheel.contracts.crds.paddlejob import Placement
from paddlewheel.contracts.crds.parse import parse_paddle_job_status
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_controlled_by, key_of, uid_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.log_reason import telling_lines
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Cluster, Object

_STALLED = "Stalled"
"""The condition of a job that has not reported progress for too long."""
LINES = 10
"""Number of log lines of the pod that is the cause."""
_LOG_LINES = 80
_LOG_LIMIT = 16 * 1024
_CAUSE = re.compile(r"^pod (?P<pod>[a-z0-9.-]+):? (?:(?:failed in )?container (?P<container>[a-z0-9-]+) )?")
_WITH_LOG = frozenset(
    {Reason.CRASH_LOOP_BACK_OFF, Reason.POD_FAILED, Reason.FAILURE_RULE, Reason.BACKOFF_LIMIT_EXCEEDED}
)
_UNSEEN = "check job-controller: kubectl get pods -A -l app.kubernetes.io/name=job-controller"


@dataclass(frozen=True)
class Explanation:
    """One reason, its meaning and what to do about it.

    Attributes:
        about: kind and name of the object in JSON: `{"job": "team-a/resnet"}`. For a data set it is
            `sampleSet`, followed by `run` when a run has the reason.
        lines: the last log lines of the pod that is the cause.
    """

    about: Mapping[str, str]
    phase: str
    reason: str
    means: str
    message: str
    remedy: str
    pod: str = ""
    lines: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the object that has the reason."""
        return list(self.about.values())[-1]

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON, for scripts."""
        return {
            **self.about, "phase": self.phase, "reason": self.reason, "means": self.means,
            "message": self.message, "toDo": self.remedy, "pod": self.pod, "lines": self.lines,
        }  # fmt: skip

    def text(self) -> str:
        """The explanation as text, for people."""
        head = f"{self.key} is {self.phase}: {self.reason}"
        parts = [head, *(f"  {part}" for part in (self.means, self.message) if part)]
        parts += [f"  | {line}" for line in self.lines]
        return "\n".join([*parts, f"  to do: {self.remedy}"])


def print_explanation(said: Explanation, output: Format) -> None:
    """Print an explanation for people or scripts."""
    if output is Format.JSON:
        print_json(said.as_json())
        return
    print_foreign(said.text())


def explain(job: Object) -> Explanation:
    """Explain a job from its status."""
    key, status = key_of(job), parse_paddle_job_status(job)
    if not status.phase:
        means = "job-controller has not processed it"
        return Explanation({"job": str(key)}, "not processed yet", "NotSeen", means, "", _UNSEEN)
    reason, message = _cause(status)
    known = reason_named(reason)
    remedy = advice_for(known, message, is_placed=_is_placed(job)) if known else SEE_MESSAGE
    return Explanation(
        about={"job": str(key)},
        phase=status.phase,
        reason=reason,
        means=known.meaning if known else "",
        message=message,
        remedy=remedy.format(job=key.name, namespace=key.namespace, key=key),
    )


def reason_named(reason: str) -> Reason | None:
    """None for a reason of another version."""
    return next((each for each in Reason if each == reason), None)


def _is_placed(job: Object) -> bool:
    ref = (job.get("spec") or {}).get("sampleSetRef") or {}
    return bool(ref.get("placement") == Placement.REQUIRED)


def _cause(status: PaddleJobStatus) -> tuple[str, str]:
    """Reason and message. The pods of a training that hangs are running, so its condition is used."""
    stalled = conditions.find(status.conditions, _STALLED)
    if stalled and stalled.status == "True" and status.reason == Reason.ALL_PODS_RUNNING:
        return stalled.reason, stalled.message
    return status.reason, status.message


async def with_lines(api: Cluster, found: Explanation, job: Object) -> Explanation:
    """Add the last log lines of the pod that the message names, or the lines that were kept with the job."""
    named = _CAUSE.match(found.message)
    if found.reason not in _WITH_LOG or named is None:
        return found
    pod = Key(key_of(job).namespace, named["pod"])
    text = ""
    with suppress(NotFound, Permanent, Retry):
        text = await _log(api, pod, named["container"])
    if not text:
        with suppress(NotFound, Permanent, Retry):
            text = await _kept_log(api, pod, job)
    return replace(found, pod=pod.name, lines=telling_lines(text, LINES)) if text else found


async def _log(api: Cluster, pod: Key, container: str | None) -> str:
    container = container or (await api.get(PODS, pod))["spec"]["containers"][0]["name"]
    return await api.read_log(pod, container=str(container), lines=_LOG_LINES, limit_bytes=_LOG_LIMIT)


async def _kept_log(api: Cluster, pod: Key, job: Object) -> str:
    kept = await api.get(CONFIG_MAPS, Key(pod.namespace, kept_logs_name(key_of(job).name)))
    lines = (kept.get("data") or {}).get(pod.name, "")
    return str(lines) if is_controlled_by(kept, uid_of(job)) else ""
