"""What the API server says beyond the schema: warnings for words that work but mislead, and one refusal.

Warnings never stop a manifest: an unknown policy word goes on meaning what it meant in the original. The
refusal stands here because CEL in a CRD cannot see the object's namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddlewheel.contracts.crds.kinds import GROUP, PADDLE_JOB, SAMPLE_JOB, SAMPLE_SET, Kind
from paddlewheel.contracts.crds.operations import OPERATIONS, Operation
from paddlewheel.contracts.crds.paddlejob import ROLES

SPEC = "object.spec"


@dataclass(frozen=True)
class Check:
    """One sentence to the user, said when something holds.

    Attributes:
        when: CEL over `object` and `oldObject` (null on creation): say it.
        message: CEL that gives the text; names the field, what it means and the remedy.
    """

    when: str
    message: str


def _text(sentence: str) -> str:
    return "'" + sentence.replace("'", "\\'") + "'"


def _named_word(field: str, words: tuple[str, ...], meaning: str) -> Check:
    listed = ", ".join(f"'{word}'" for word in words)
    return Check(
        f"has({SPEC}.{field}) && !({SPEC}.{field} in ['', {listed}])",
        f"'spec.{field} ' + {SPEC}.{field} + ' is none of {', '.join(words)}: {meaning}'",
    )


def _replicas(role: str) -> str:
    at = f"{SPEC}.{role}"
    return f"(has({at}) && has({at}.replicas) ? {at}.replicas : 0)"


_ALL_REPLICAS = " + ".join(_replicas(role) for role in ROLES)


def _replica_bounds(role: str) -> Check:
    at, said = f"{SPEC}.{role}", f"spec.{role}"
    return Check(
        f"has({at}) && has({at}.replicas) && ((has({at}.requests) && {at}.replicas < {at}.requests)"
        f" || (has({at}.limits) && {at}.limits > 0 && {at}.replicas > {at}.limits))",
        _text(
            f"{said}.replicas lies outside {said}.requests and {said}.limits: it counts, the others do not"
        ),
    )


PADDLE_JOB_WARNINGS = (
    _named_word(
        "cleanPodPolicy",
        ("Always", "Never", "OnFailure", "OnCompletion"),
        "it means Never, so the pods are kept; use one of these words",
    ),
    _named_word("intranet", ("PodIP", "Service", "Host"), "it means PodIP; use one of these words"),
    Check(
        f"has({SPEC}.elastic) && {SPEC}.elastic == 0",
        _text(
            "spec.elastic 0 leaves elastic training off, where the original operator switched it on:"
            " set 1 for elastic training or remove the field"
        ),
    ),
    Check(
        f"has({SPEC}.withGloo) && ({SPEC}.withGloo < 0 || {SPEC}.withGloo > 2)",
        f"'spec.withGloo ' + string({SPEC}.withGloo) + ' is none of 0 (off), 1 (workers), 2 (workers and"
        " servers): below 0 means off, above 2 is passed on as it is'",
    ),
    Check(
        f"has({SPEC}.schedulingPolicy) && has({SPEC}.schedulingPolicy.minAvailable)"
        f" && {SPEC}.schedulingPolicy.minAvailable > {_ALL_REPLICAS}",
        _text(
            "spec.schedulingPolicy.minAvailable is more than all replicas together:"
            " a gang scheduler would never start the job; lower it"
        ),
    ),
    Check(
        f"{_ALL_REPLICAS} == 0",
        _text("spec asks for no pod: every role has replicas 0; raise spec.worker.replicas to run"),
    ),
    Check(
        f"has({SPEC}.sampleSetRef) && has({SPEC}.sampleSetRef.mountPath)"
        f" && !{SPEC}.sampleSetRef.mountPath.startsWith('/')",
        f"'spec.sampleSetRef.mountPath ' + {SPEC}.sampleSetRef.mountPath + ' is relative: it means /'"
        f" + {SPEC}.sampleSetRef.mountPath + '; write it so'",
    ),
    *(_replica_bounds(role) for role in ROLES),
)

PADDLE_JOB_REFUSALS = (
    Check(
        f"has({SPEC}.sampleSetRef) && has({SPEC}.sampleSetRef.namespace)"
        f" && !({SPEC}.sampleSetRef.namespace in ['', request.namespace])",
        f"'spec.sampleSetRef.namespace ' + {SPEC}.sampleSetRef.namespace + ' is another namespace: the claim"
        " of a SampleSet can be mounted in its own namespace only; remove the field and run the job there'",
    ),
)

_BOUND = "oldObject != null && has(object.status) && has(object.status.phase) && object.status.phase != ''"
_SYNCED = f"{_BOUND} && object.status.phase in ['PartialReady', 'Ready']"


def _settled(field: str, since: str, when: str) -> Check:
    now, before = f"{SPEC}.?{field}", f"oldObject.spec.?{field}"
    return Check(
        f"{when} && {now} != {before}",
        _text(
            f"spec.{field} is not meant to change once the set is {since}:"
            " delete the set and make it anew for the change to take full effect"
        ),
    )


_WITH_CREDENTIALS = "matches('^[a-z0-9]+://[^/]*@')"

SAMPLE_SET_WARNINGS = (
    Check(
        f"!(has({SPEC}.noSync) && {SPEC}.noSync) && !(has({SPEC}.source) && has({SPEC}.source.uri))",
        _text(
            "spec.source.uri is absent, so there is nothing to sync and the set stops at phase Mount:"
            " set it, or set spec.noSync true when the data is in the engine already"
        ),
    ),
    Check(
        f"has({SPEC}.source) && has({SPEC}.source.uri) && {SPEC}.source.uri.{_WITH_CREDENTIALS}",
        _text("spec.source.uri carries credentials that everybody may read: use spec.source.secretRef"),
    ),
    *(_settled(f, "bound", _BOUND) for f in ("secretRef", "csi", "cache", "nodeAffinity", "tolerations")),
    _settled("source", "synced", _SYNCED),
)


def _foreign_options(operation: Operation) -> Check:
    options = operation.options_field
    return Check(
        f"has({SPEC}.type) && {SPEC}.type != '{operation.word}' && has({SPEC}.{options})",
        f"'spec.{options} has no effect with spec.type ' + {SPEC}.type",
    )


def _wildcards(field: str) -> Check:
    options = field.partition(".")[0]
    return Check(
        f"has({SPEC}.{options}) && has({SPEC}.{field}) && {SPEC}.{field}.exists(p, p.contains('*'))",
        _text(f"spec.{field} is taken literally: '*' stands for itself, not for other names"),
    )


SAMPLE_JOB_WARNINGS = (
    *(_foreign_options(operation) for operation in OPERATIONS),
    *(_wildcards(field) for field in ("warmupOptions.paths", "rmrOptions.paths")),
    Check(
        f"has({SPEC}.syncOptions) && (has({SPEC}.syncOptions.manager) || has({SPEC}.syncOptions.worker))",
        _text(
            "spec.syncOptions.manager and worker have no effect: every node of the set takes part in a sync"
        ),
    ),
    Check(
        f"has({SPEC}.syncOptions) && has({SPEC}.syncOptions.bwlimit) && {SPEC}.syncOptions.bwlimit < 0",
        _text("spec.syncOptions.bwlimit below 0 means no limit; write 0"),
    ),
    Check(
        f"has({SPEC}.syncOptions) && has({SPEC}.syncOptions.source)"
        f" && {SPEC}.syncOptions.source.{_WITH_CREDENTIALS}",
        _text("spec.syncOptions.source carries credentials that everybody may read: use spec.secretRef"),
    ),
    Check(
        "oldObject != null && has(object.status) && has(object.status.phase)"
        " && object.status.phase == 'Succeeded' && object.spec != oldObject.spec",
        _text("the job has succeeded: editing its spec has no effect; make a new SampleJob"),
    ),
)

WARNINGS = (
    (PADDLE_JOB, PADDLE_JOB_WARNINGS),
    (SAMPLE_SET, SAMPLE_SET_WARNINGS),
    (SAMPLE_JOB, SAMPLE_JOB_WARNINGS),
)
REFUSALS = ((PADDLE_JOB, PADDLE_JOB_REFUSALS),)


def warnings() -> list[dict[str, Any]]:
    """Policies and bindings that warn; without them everything works, only silently."""
    return [part for kind, checks in WARNINGS for part in _policy(kind, "warnings", "Warn", "Ignore", checks)]


def refusals() -> list[dict[str, Any]]:
    """Policies and bindings that refuse."""
    return [part for kind, checks in REFUSALS for part in _policy(kind, "refusals", "Deny", "Fail", checks)]


def _policy(
    kind: Kind, purpose: str, action: str, on_error: str, checks: tuple[Check, ...]
) -> list[dict[str, Any]]:
    name = f"{kind.plural}-{purpose}.{GROUP}"
    match = {
        "apiGroups": [GROUP],
        "apiVersions": [kind.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [kind.plural],
    }
    api = "admissionregistration.k8s.io/v1"
    policy = {
        "failurePolicy": on_error,
        "matchConstraints": {"resourceRules": [match]},
        # Controllers touch metadata only; nobody needs to hear the same twice.
        "matchConditions": [
            {
                "name": "spec-is-new",
                "expression": "has(object.spec) && (oldObject == null || !has(oldObject.spec)"
                " || object.spec != oldObject.spec)",
            }
        ],
        "validations": [_validation(check) for check in checks],
    }
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": [action]},
        },
    ]


def _validation(check: Check) -> dict[str, str]:
    return {"expression": f"!({check.when})", "messageExpression": check.message}
