"""Explains the state of a data set: its own reason, or the reason of a run that waits or has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddlewheel.cli.advice import SEE_MESSAGE, data_advice_for
from paddlewheel.cli.data_runs import FAILED
from paddlewheel.cli.explain import Explanation, reason_named
from paddlewheel.contracts.crds import SampleJobStatus, SampleSetStatus
from paddlewheel.contracts.crds.parse import parse_sample_job_status, parse_sample_set_status
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_deleting, key_of
from paddlewheel.kube.ports import Object

_UNSEEN = "check dataset-controller: kubectl get pods -A -l app.kubernetes.io/name=dataset-controller"
_READY = "Ready"
_OF_THE_SET = ("Accepted", "Ready")
"""Conditions of a set that are the reason when they are False."""
_OF_THE_RUN = ("Pending", FAILED)
"""Phases of a run that are the reason when its set is ready."""
_RUNNING = "Running"
"""Phase and reason of a run that makes progress."""


def explain_sample_set(found: Object, runs: Sequence[Object]) -> Explanation:
    """Explain a set from its status. For a ready set, use its newest run when that waits or has failed.

    Args:
        runs: SampleJobs of the set, the newest first.
    """
    status = parse_sample_set_status(found)
    about = {"sampleSet": str(key_of(found))}
    if not status.phase and not status.reason:
        means = "dataset-controller has not processed it"
        return Explanation(about, "not processed yet", "NotSeen", means, "", _UNSEEN)
    if _is_well(found, status) and runs and _has_reason(parse_sample_job_status(runs[0])):
        about["run"] = str(key_of(runs[0]))
        return _explanation(key_of(found), about, parse_sample_job_status(runs[0]))
    return _explanation(key_of(found), about, status)


def _is_well(found: Object, status: SampleSetStatus) -> bool:
    """True when the set itself has no problem. A refused or deleted set keeps its phase while pods use it."""
    is_refused = any(c.type in _OF_THE_SET and c.status == "False" for c in status.conditions)
    return status.phase == _READY and not is_deleting(found) and not is_refused


def _has_reason(run: SampleJobStatus) -> bool:
    return run.phase in _OF_THE_RUN or (run.phase == _RUNNING and run.reason != _RUNNING)


def _explanation(
    sample_set: Key, about: Mapping[str, str], status: SampleSetStatus | SampleJobStatus
) -> Explanation:
    known = reason_named(status.reason)
    remedy = data_advice_for(known) if known else SEE_MESSAGE
    kind, key = ("samplejob", about["run"]) if "run" in about else ("sampleset", about["sampleSet"])
    return Explanation(
        about=about,
        phase=status.phase or "not bound",
        reason=status.reason,
        means=known.meaning if known else "",
        message=status.message,
        remedy=remedy.format(
            namespace=sample_set.namespace,
            name=sample_set.name,
            key=sample_set,
            object=f"{kind} {key.rpartition('/')[2]}",
        ),
    )
