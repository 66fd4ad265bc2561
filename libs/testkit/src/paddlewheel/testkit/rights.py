"""The chart's roles against the API server's audit log: what services may do, did, and were refused.

Tests run services under the identities that the chart gives them (`ServiceHarness`), or install the chart
itself. What the API server noted is kept when a cluster goes (`keep`), and compared at the end of the run
(`python -m tests.rights`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from paddlewheel.devcluster.state import cluster_dirs
from paddlewheel.testkit.audit import Request, read_log
from paddlewheel.testkit.charts import REPOSITORY, Manifest, Manifests, render, services

KEPT = REPOSITORY / "build" / "rights"
"""A file for each cluster of the last run."""
NAMESPACE = "paddle-system"
"""The namespace of the release."""
_EVENTS = "events.paddlepaddle.org"
_ASKED_ABOUT = {(_EVENTS, "facts"), (_EVENTS, "busroles"), (_EVENTS, "busteams")}
_PREFIX = f"system:serviceaccount:{NAMESPACE}:"


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one kind. `resource` has its subresource, as in a role: `pods/log`."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        kind = f"{self.group}/{self.resource}" if self.group else self.resource
        return f"{self.account}: {self.verb} {kind}"


@dataclass(frozen=True)
class Asked:
    """The rights that accounts of the chart have used, and refused ones."""

    used: frozenset[Right] = frozenset()
    refused: frozenset[Right] = frozenset()

    def __or__(self, other: Asked) -> Asked:
        return Asked(self.used | other.used, self.refused | other.refused)


@dataclass(frozen=True)
class Comparison:
    """The differences between the roles and the requests.

    Args:
        missing: rights that were requested and refused.
        unused: rights that are granted, never used, and not reviewed.
        stale: rights that were reviewed as unused, but are used, or no longer granted.
    """

    missing: tuple[Right, ...] = ()
    unused: tuple[Right, ...] = ()
    stale: tuple[Right, ...] = ()


def everywhere() -> Manifests:
    """The chart whose dataset-controller serves all namespaces: each test has another."""
    return render("paddlewheel", "crds.install=false", "datasetController.namespaces={*}")


def requested() -> frozenset[Right]:
    """The rights for requests that the chart grants, with each kind of authentication.

    Roles on the bus are left out: they are rights on kinds that no client requests, and bus-auth only checks
    them.
    """
    of_all = granted(everywhere()) | granted(render("paddlewheel", "crds.install=false"))
    return frozenset(right for right in of_all if (right.group, right.resource) not in _ASKED_ABOUT)


def by_consent() -> frozenset[Right]:
    """The rights that a namespace gives to be served. Without them, dataset-controller is refused there."""
    by_default = {_name(manifest) for manifest in services()}
    consent = [m for m in everywhere() if "Binding" not in m["kind"] or _name(m) not in by_default]
    return granted(consent)


def _name(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


_BUILT_IN = {
    ("ClusterRole", "system:auth-delegator"): {
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            },
        ]
    }
}
"""Roles of Kubernetes that the chart binds."""


def granted(manifests: Iterable[Manifest]) -> frozenset[Right]:
    """The rights that the roles of these manifests grant to service accounts, in any namespace."""
    objects = list(manifests)
    roles = {(m["kind"], m["metadata"]["name"]): m for m in objects if m["kind"] in ("Role", "ClusterRole")}
    roles |= _BUILT_IN
    bindings = (m for m in objects if m["kind"] in ("RoleBinding", "ClusterRoleBinding"))
    return frozenset(
        right
        for binding in bindings
        for subject in binding.get("subjects", ())
        if subject["kind"] == "ServiceAccount"
        for right in _of_role(subject["name"], roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]])
    )


def _of_role(account: str, role: Manifest) -> Iterable[Right]:
    for rule in role["rules"]:
        for group in rule.get("apiGroups", ()):
            for resource in rule.get("resources", ()):
                yield from (Right(account, group, resource, verb) for verb in rule["verbs"])


def read(lines: Iterable[str]) -> Asked:
    """Read an audit log. Refusals while a release is being removed do not count."""
    requests = read_log(lines)
    return Asked(_rights(requests.allowed), _rights(requests.refused))


def _rights(requests: Iterable[Request]) -> frozenset[Right]:
    """The rights of the chart's accounts."""
    return frozenset(
        Right(request.user.removeprefix(_PREFIX), request.group, request.resource, request.verb)
        for request in requests
        if request.user.startswith(_PREFIX)
    )


def compare(
    given: frozenset[Right],
    asked: Asked,
    reviewed: frozenset[Right],
    optional: frozenset[Right] = frozenset(),
) -> Comparison:
    """0 of each is what the roles have to be.

    Args:
        optional: not granted everywhere, and asked for all the same.
    """
    return Comparison(
        tuple(sorted(asked.refused - optional)),
        tuple(sorted(given - asked.used - reviewed)),
        tuple(sorted(reviewed - (given - asked.used))),
    )


def keep(cluster: str, folder: Path = KEPT) -> Asked:
    """Note what accounts of the chart asked for in a cluster that is about to go; idempotent."""
    logs = cluster_dirs(cluster).audit_log
    asked = read(chain.from_iterable(map(_lines, logs.parent.glob(f"{logs.stem}*"))))
    if asked.used or asked.refused:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{cluster}.json").write_text(json.dumps(_rendered(asked), indent=1))
    return asked


def _lines(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as lines:
        yield from lines


def kept(folder: Path = KEPT) -> Asked:
    """The requests that were recorded in all clusters."""
    asked = Asked()
    for path in folder.glob("*.json"):
        stored = json.loads(path.read_text())
        found = {name: frozenset(Right(*right) for right in stored[name]) for name in ("used", "refused")}
        asked |= Asked(found["used"], found["refused"])
    return asked


def _rendered(asked: Asked) -> Mapping[str, list[tuple[str, ...]]]:
    parts = {"used": asked.used, "refused": asked.refused}
    return {
        name: sorted((r.account, r.group, r.resource, r.verb) for r in rights)
        for name, rights in parts.items()
    }
