"""The admission policies of `admission_rules`, as manifests for the API server."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_FIELD = re.compile(r"\b(object|oldObject)\.")
REFUSALS = ((PADDLE_JOB, PADDLE_JOB_REFUSALS),)


def warnings() -> list[dict[str, Any]]:
    """A policy that only warns, and its binding.

    A cluster without them works the same, except for the warnings.
    """
    # Kubernetes requires that every kind of a policy has the fields in its expressions, except in variables.
    variables = [{"name": name, "expression": name} for name in ("object", "oldObject")]
    spec = {
        "failurePolicy": "Ignore",
        **_matching([kind for kind, _ in WARNINGS]),
        "variables": variables,
        "validations": [_for_kind(kind, rule) for kind, rules in WARNINGS for rule in rules],
    }
    return _policy(f"warnings.{GROUP}", "Warn", spec)


def refusals() -> list[dict[str, Any]]:
    """Policies that refuse manifests, and their bindings."""
    made = []
    for kind, rules in REFUSALS:
        validations = [_validation(rule) for rule in rules]
        spec = {"failurePolicy": "Fail", **_matching([kind]), "validations": validations}
        made += _policy(f"{kind.plural}-refusals.{GROUP}", "Deny", spec)
    return made


def _matching(kinds: Sequence[Kind]) -> dict[str, Any]:
    """The parts of a policy that select new objects of these kinds, and objects whose spec has changed."""
    rules = [
        {
            "apiGroups": [GROUP],
            "apiVersions": [kind.version],
            "operations": ["CREATE", "UPDATE"],
            "resources": [kind.plural],
        }
        for kind in kinds
    ]
    return {
        "matchConstraints": {"resourceRules": rules},
        # Updates of metadata alone, which controllers make often, do not repeat the warnings.
        "matchConditions": [
            {
                "name": "spec-is-new",
                "expression": "has(object.spec) && (oldObject == null || !has(oldObject.spec)"
                " || object.spec != oldObject.spec)",
            }
        ],
    }


def _policy(name: str, action: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    api = "admissionregistration.k8s.io/v1"
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": [action]},
        },
    ]


def _validation(rule: AdmissionRule) -> dict[str, str]:
    return {"expression": f"!({rule.when})", "messageExpression": rule.message_expression}


def _for_kind(kind: Kind, rule: AdmissionRule) -> dict[str, str]:
    """The rule for a policy that matches several kinds: it applies to `kind` only."""
    made = {key: _FIELD.sub(r"variables.\1.", text) for key, text in _validation(rule).items()}
    return {**made, "expression": f"request.resource.resource != '{kind.plural}' || {made['expression']}"}
