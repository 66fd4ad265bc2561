"""The chart's Roles for people permit tokens of some accounts of the bus, on a real API server."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from paddlewheel.bus.admin.permissions import ROLES
from paddlewheel.testkit.charts import named, render
from paddlewheel.testkit.kubernetes import run_kubectl

FOR_PEOPLE = {"bus-readers": {"subscriber"}, "bus-operators": {"evaluator", "operator", "subscriber"}}
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(api_server: str) -> Kubectl:
    """Run kubectl as the administrator of the test's API server."""
    return partial(run_kubectl, api_server, timeout=240)


@pytest.fixture
def release(kubectl: Kubectl) -> Iterator[str]:
    """A namespace with the accounts of the bus, and for each Role for people a user of its name."""
    namespace = f"people-{uuid.uuid4().hex[:8]}"
    ok(kubectl("create", "namespace", namespace))
    try:
        for name in FOR_PEOPLE:
            role = named(render("paddlewheel"), "Role", name)
            placed = {**role, "metadata": {**role["metadata"], "namespace": namespace}}
            ok(kubectl("create", "--filename", "-", stdin=json.dumps(placed)))
            binding = ("create", "rolebinding", name, f"--role={name}", f"--user={name}")
            ok(kubectl("--namespace", namespace, *binding))
        for account in ROLES:
            ok(kubectl("--namespace", namespace, "create", "serviceaccount", account.name))
        yield namespace
    finally:
        ok(kubectl("delete", "namespace", namespace, "--wait=false"))


@pytest.mark.parametrize("user", list(FOR_PEOPLE))
def test_people_get_tokens_of_the_accounts_for_people_and_ports_of_the_servers_and_no_others(
    kubectl: Kubectl, release: str, user: str
) -> None:
    def asked(account: str) -> subprocess.CompletedProcess[str]:
        where = ("--as", user, "--namespace", release)
        return kubectl(*where, "create", "token", account, "--audience", "paddlewheel-bus")

    answers = {name: asked(name) for name in (*(role.name for role in ROLES), "default")}
    granted = FOR_PEOPLE[user]

    assert {name for name, answer in answers.items() if answer.returncode == 0} == granted
    assert all(answers[name].stdout.startswith("ey") for name in granted)
    forwarded = {pod for pod in ("nats-0", "job-controller-0") if can_forward(kubectl, release, user, pod)}
    assert forwarded == {"nats-0"}
    refusals = [answer.stderr for name, answer in answers.items() if name not in granted]
    assert all("forbidden" in refusal for refusal in refusals), refusals


def can_forward(kubectl: Kubectl, release: str, user: str, pod: str) -> bool:
    question = ("auth", "can-i", "create", f"pods/{pod}", "--subresource=portforward")
    return kubectl(*question, "--as", user, "--namespace", release).returncode == 0


def ok(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
