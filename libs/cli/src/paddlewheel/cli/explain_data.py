"""Why a data set is as it is: of itself, or by a run of it that waits or has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddlewheel.cli.data_runs import FAILED
from paddlewheel.cli.explain import Explanation, reason_named
from paddlewheel.cli.remedies import SEE_MESSAGE, data_remedy_for
from paddlewheel.contracts.crds import SampleJobStatus, SampleSetStatus
from paddlewheel.contracts.crds.parse import parse_sample_job_status, parse_sample_set_status
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_deleting, key_of
from paddlewheel.kube.ports import Object

_UNSEEN = "see that dataset-controller runs: kubectl get pods -A -l app.kubernetes.io/name=dataset-controller"
_READY = "Ready"
_SAYS_MORE = ("Accepted", "Ready")
"""Conditions of a set that say more than its runs when they are False."""
_TELLS = ("Pending", FAILED)
"""Phases of a run that say more than that its set is ready."""
_RUNNING = "Running"
"""Phase and reason of a run that waits for nothing."""


def explain_sample_set(found: Object, runs: Sequence[Object]) -> Explanation:
    """From the status alone; of a set that is ready, its newest run tells if that waits or has failed.

    Args:
        runs: SampleJobs of the set, the newest first.
    """
    status = parse_sample_set_status(found)
    about = {"sampleSet": str(key_of(found))}
    if not status.phase and not status.reason:
        means = "dataset-controller has not looked at it"
        return Explanation(about, "not seen yet", "NotSeen", means, "", _UNSEEN)
    if _is_well(found, status) and runs and _tells(parse_sample_job_status(runs[0])):
        about["run"] = str(key_of(runs[0]))
        return _explanation(key_of(found), about, parse_sample_job_status(runs[0]))
    return _explanation(key_of(found), about, status)


def _is_well(found: Object, status: SampleSetStatus) -> bool:
    """Nothing is to be said of the set itself. One that is refused, or that waits for its end, keeps its
    phase while pods use it."""
    is_refused = any(c.type in _SAYS_MORE and c.status == "False" for c in status.conditions)
    return status.phase == _READY and not is_deleting(found) and not is_refused


def _tells(run: SampleJobStatus) -> bool:
    return run.phase in _TELLS or (run.phase == _RUNNING and run.reason != _RUNNING)


def _explanation(
    sample_set: Key, about: Mapping[str, str], status: SampleSetStatus | SampleJobStatus
) -> Explanation:
    known = reason_named(status.reason)
    remedy = data_remedy_for(known) if known else SEE_MESSAGE
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
