"""Rights that no test uses, each with the reason why the chart gives it all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddlewheel.testkit.rights import Right

BATCH = "batch.paddlepaddle.org"
EVENTS = "events.paddlepaddle.org"
SERVING = "elasticserving.paddlepaddle.org"

_ADMISSION = (
    "asked by the admission plugin OwnerReferencesPermissionEnforcement, where it is enabled, for"
    " blockOwnerDeletion in owner references; never a request of its own. Without the right the service's"
    " children are refused (tests/integration/security/test_owners.py)"
)

_CONFLICT = (
    "read after a patch that was refused, to see whether another object has taken the name meanwhile:"
    " Knative makes revisions, and never two of one name (unit tests of the executor)"
)


def _rights(reason: str, account: str, group: str, resource: str, *verbs: str) -> Iterable[tuple[Right, str]]:
    return ((Right(account, group, resource, verb), reason) for verb in verbs)


UNUSED: Mapping[Right, str] = dict(
    (
        *_rights(_ADMISSION, "job-controller", BATCH, "paddlejobs/finalizers", "update"),
        *_rights(_ADMISSION, "dataset-controller", BATCH, "samplesets/finalizers", "update"),
        *_rights(_ADMISSION, "serving-controller", SERVING, "paddleservices/finalizers", "update"),
        *_rights(_ADMISSION, "trigger-controller", EVENTS, "triggers/finalizers", "update"),
        *_rights(_CONFLICT, "serving-controller", "serving.knative.dev", "revisions", "get"),
    )
)
"""By right."""
