"""The admission policies of `admission_rules`, as manifests for the API server."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.crds.admission_rules import (
    PADDLE_JOB_REFUSALS,
    PADDLE_JOB_WARNINGS,
    SAMPLE_JOB_WARNINGS,
    SAMPLE_SET_WARNINGS,
    AdmissionRule,
)
from paddlewheel.contracts.crds.kinds import GROUP, PADDLE_JOB, SAMPLE_JOB, SAMPLE_SET, Kind

WARNINGS = (
    (PADDLE_JOB, PADDLE_JOB_WARNINGS),
    (SAMPLE_SET, SAMPLE_SET_WARNINGS),
    (SAMPLE_JOB, SAMPLE_JOB_WARNINGS),
)
REFUSALS = ((PADDLE_JOB, PADDLE_JOB_REFUSALS),)


def warnings() -> list[dict[str, Any]]:
    """Policies and bindings that warn; without them everything works, without the warnings."""
    return [part for kind, rules in WARNINGS for part in _policy(kind, "warnings", "Warn", "Ignore", rules)]


def refusals() -> list[dict[str, Any]]:
    """Policies and bindings that refuse."""
    return [part for kind, rules in REFUSALS for part in _policy(kind, "refusals", "Deny", "Fail", rules)]


def _policy(
    kind: Kind, purpose: str, action: str, on_error: str, rules: tuple[AdmissionRule, ...]
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
        # An update of metadata alone, as controllers make them, repeats no warning.
        "matchConditions": [
            {
                "name": "spec-is-new",
                "expression": "has(object.spec) && (oldObject == null || !has(oldObject.spec)"
                " || object.spec != oldObject.spec)",
            }
        ],
        "validations": [_validation(rule) for rule in rules],
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


def _validation(rule: AdmissionRule) -> dict[str, str]:
    return {"expression": f"!({rule.when})", "messageExpression": rule.message_expression}
