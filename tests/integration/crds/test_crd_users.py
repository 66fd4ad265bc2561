"""Users with Kubernetes' own roles in a namespace can use each kind, by the chart's ClusterRoles."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.crds.api import make
from tests.integration.crds.conftest import Kubectl

from paddlewheel.contracts.crds import KINDS
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.charts import services
from paddlewheel.testkit.wait import eventually

PLURALS = [kind.plural for kind in KINDS]


@dataclass(frozen=True)
class Team:
    """A namespace in which the users `view`, `edit` and `admin` have the role of that name."""

    namespace: str
    kubectl: Kubectl

    def run(self, user: str, *args: str, manifest: Object | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as this user in the namespace."""
        stdin = json.dumps(manifest) if manifest else ""
        return self.kubectl("--as", self.name_of(user), "--namespace", self.namespace, *args, stdin=stdin)

    def name_of(self, user: str) -> str:
        return f"{user}-of-{self.namespace}"


@pytest.fixture
async def team(made_team: Team) -> Team:
    """Wait until kube-controller-manager has added the rules of all kinds to the roles."""

    async def are_aggregated() -> bool:
        rights = (("view", "list"), ("edit", "create"), ("admin", "create"))
        asked = [
            made_team.run(user, "auth", "can-i", verb, plural).returncode
            for user, verb in rights
            for plural in PLURALS
        ]
        return not any(asked)

    await eventually(are_aggregated, within=90, every=1, what="the roles have the rules of each kind")
    return made_team


@pytest.fixture(scope="module")
def made_team(kubectl: Kubectl) -> Iterator[Team]:
    made = Team(f"users-{uuid.uuid4().hex[:8]}", kubectl)
    ok(kubectl("create", "namespace", made.namespace))
    roles = [manifest for manifest in services() if is_for_users(manifest)]
    for role in roles:
        # Another test may have the whole chart on this server.
        renamed = {
            **role,
            "metadata": {**role["metadata"], "name": f"{role['metadata']['name']}-{made.namespace}"},
        }
        ok(kubectl("create", "-f", "-", stdin=json.dumps(renamed)))
    for user in ("view", "edit", "admin"):
        binding = ("create", "rolebinding", user, f"--clusterrole={user}", f"--user={made.name_of(user)}")
        ok(kubectl("--namespace", made.namespace, *binding))
    yield made
    for role in roles:
        kubectl("delete", "clusterrole", f"{role['metadata']['name']}-{made.namespace}")
    kubectl("delete", "namespace", made.namespace, "--wait=false")


@pytest.fixture
def manifests(team: Team) -> dict[str, Object]:
    """One good object of each kind, by plural."""
    found = {}
    for kind in KINDS:
        found[kind.plural] = {**make(kind.kind), "metadata": {"name": "made", "namespace": team.namespace}}
    return found


def is_for_users(manifest: Object) -> bool:
    return any("/aggregate-to-" in label for label in manifest["metadata"].get("labels", {}))


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_viewers_read_each_kind_and_write_none(team: Team, manifests: dict[str, Object]) -> None:
    for plural in PLURALS:
        ok(team.run("view", "get", plural))
    for manifest in manifests.values():
        refused = team.run("view", "create", "-f", "-", manifest=manifest)
        assert "(Forbidden)" in refused.stderr


@pytest.mark.parametrize("user", ["edit", "admin"])
async def test_editors_create_change_and_delete_each_kind_but_write_no_status(
    user: str, team: Team, manifests: dict[str, Object]
) -> None:
    for plural, manifest in manifests.items():
        ok(team.run(user, "create", "-f", "-", manifest=manifest))
        ok(team.run(user, "label", plural, "made", "team=a"))
        refused = team.run(
            user, "patch", plural, "made", "--subresource=status", "--type=merge", "-p", '{"status": {}}'
        )
        assert "(Forbidden)" in refused.stderr
        ok(team.run("view", "get", plural, "made"))
        ok(team.run(user, "delete", plural, "--all"))


async def test_editors_scale_jobs_and_services(team: Team, manifests: dict[str, Object]) -> None:
    for plural in ("paddlejobs", "paddleservices"):
        ok(team.run("edit", "create", "-f", "-", manifest=manifests[plural]))
        ok(team.run("edit", "scale", plural, "made", "--replicas=3"))
        assert "(Forbidden)" in team.run("view", "scale", plural, "made", "--replicas=4").stderr
        ok(team.run("edit", "delete", plural, "made"))
