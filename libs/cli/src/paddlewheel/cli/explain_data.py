"""Why a data set is as it is: of itself, or by a run of it that has failed."""

from __future__ import annotations

from collections.abc import Sequence

from paddlewheel.cli.data_runs import FAILED
from paddlewheel.cli.explain import Explanation, reason_named
from paddlewheel.cli.remedies import SEE_MESSAGE, data_remedy_for
from paddlewheel.contracts.crds.parse import parse_sample_job_status, parse_sample_set_status
from paddlewheel.contracts.objects import key_of
from paddlewheel.kube.ports import Object

_UNSEEN = "see that dataset-controller runs: kubectl get pods -A -l app.kubernetes.io/name=dataset-controller"
_READY = "Ready"


def explain_sample_set(found: Object, runs: Sequence[Object]) -> Explanation:
    """From the status alone; of a set that is ready, its newest run tells if that has failed.

    Args:
        runs: SampleJobs of the set, the newest first.
    """
    key, status = key_of(found), parse_sample_set_status(found)
    if not status.phase and not status.reason:
        return Explanation(
            str(key), "not seen yet", "NotSeen", "dataset-controller has not looked at it", "", _UNSEEN
        )
    if status.phase == _READY and runs and parse_sample_job_status(runs[0]).phase == FAILED:
        return _of_run(runs[0])
    return _explanation(str(key), status.phase, status.reason, status.message, key.namespace)


def _of_run(run: Object) -> Explanation:
    key, status = key_of(run), parse_sample_job_status(run)
    return _explanation(str(key), status.phase, status.reason, status.message, key.namespace)


def _explanation(key: str, phase: str, reason: str, message: str, namespace: str) -> Explanation:
    known = reason_named(reason)
    remedy = data_remedy_for(known) if known else SEE_MESSAGE
    return Explanation(
        job=key,
        phase=phase or "not bound",
        reason=reason,
        means=known.meaning if known else "",
        message=message,
        remedy=remedy.format(namespace=namespace, name=key.rpartition("/")[2], key=key),
    )
