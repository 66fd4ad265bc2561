"""Whose Secrets an object may name: those of its own namespace, and those that are shared with it.

dataset-controller can read more than the author of an object, so the author's references are not enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataset_controller.domain.invalid import Problem
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason

SHARED_WITH = "batch.paddlepaddle.org/shared-with"
"""Annotation of a Secret: the namespaces whose data sets may use it, joined by commas."""
NAMESPACE_ROLE = "paddlewheel-dataset-namespace"
"""The chart's ClusterRole that a namespace binds to be served; the RoleBinding has the same name."""


def check_namespace(named: Key, namespace: str, home: str) -> Problem | None:
    """Before anything is read.

    Args:
        namespace: of the object that names the Secret.
        home: where this service itself runs, with the keys of the bus.
    """
    if named.namespace == namespace or named.namespace != home:
        return None
    return Problem(
        Reason.SECRET_NOT_SHARED,
        f"Secret {named}: Secrets of Paddlewheel's own namespace are never used; copy it to {namespace}",
    )


def check_consent(named: Key, namespace: str, secret: Mapping[str, Any] | None) -> Problem | None:
    """After it was read. Of a Secret elsewhere nobody learns whether it exists, but from one that does exist
    consent was withdrawn if it was ever given: what was copied of it is taken back."""
    if named.namespace == namespace or namespace in _shared_with(secret):
        return None
    annotate = f"kubectl -n {named.namespace} annotate secret {named.name} {SHARED_WITH}={namespace}"
    return Problem(
        Reason.SECRET_NOT_SHARED,
        f"Secret {named} does not exist or is not shared with {namespace}; its owner shares it: {annotate}",
        takes_back=secret is not None,
    )


def not_served(named: Key, namespace: str, home: str) -> Problem:
    """The API server refuses to show the Secret. The object's own namespace gives all that a data set needs,
    another one this Secret alone."""
    remedy = f"have an administrator serve the namespace: {_bind_namespace(namespace, home)}"
    if named.namespace != namespace:
        remedy = f"have an administrator of {named.namespace} let it be read: {_bind_secret(named, home)}"
    return Problem(Reason.NAMESPACE_NOT_SERVED, f"Secret {named} may not be read; {remedy}")


def _bind_namespace(namespace: str, home: str) -> str:
    return (
        f"kubectl -n {namespace} create rolebinding {NAMESPACE_ROLE} --clusterrole={NAMESPACE_ROLE}"
        f" --serviceaccount={home}:dataset-controller"
    )


def _bind_secret(named: Key, home: str) -> str:
    role, kubectl = f"read-{named.name}", f"kubectl -n {named.namespace} create"
    return (
        f"{kubectl} role {role} --verb=get --resource=secrets --resource-name={named.name}"
        f" && {kubectl} rolebinding {role} --role={role} --serviceaccount={home}:dataset-controller"
    )


def _shared_with(secret: Mapping[str, Any] | None) -> list[str]:
    annotations = ((secret or {}).get("metadata") or {}).get("annotations") or {}
    return [name.strip() for name in str(annotations.get(SHARED_WITH, "")).split(",")]
