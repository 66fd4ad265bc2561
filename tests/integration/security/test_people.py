"""The chart's Role for people gives tokens of three accounts of the bus, on a real API server."""

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

FOR_PEOPLE = {"evaluator", "operator", "subscriber"}
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(api_server: str) -> Kubectl:
    """Run kubectl as the administrator of the test's API server."""
    return partial(run_kubectl, api_server, timeout=240)


@pytest.fixture
def release(kubectl: Kubectl) -> Iterator[str]:
    """A namespace with the accounts of the bus, and Jane, who is bound to the Role for people."""
    namespace = f"people-{uuid.uuid4().hex[:8]}"
    ok(kubectl("create", "namespace", namespace))
    try:
        role = named(render("paddlewheel"), "Role", "bus-clients")
        placed = {**role, "metadata": {**role["metadata"], "namespace": namespace}}
        ok(kubectl("create", "--filename", "-", stdin=json.dumps(placed)))
        for account in ROLES:
            ok(kubectl("--namespace", namespace, "create", "serviceaccount", account.name))
        binding = ("create", "rolebinding", "jane", "--role=bus-clients", "--user=jane")
        ok(kubectl("--namespace", namespace, *binding))
        yield namespace
    finally:
        ok(kubectl("delete", "namespace", namespace, "--wait=false"))


def test_people_get_tokens_of_the_accounts_for_people_and_of_no_other(kubectl: Kubectl, release: str) -> None:
    def asked(account: str) -> subprocess.CompletedProcess[str]:
        where = ("--as", "jane", "--namespace", release)
        return kubectl(*where, "create", "token", account, "--audience", "paddlewheel-bus")

    answers = {name: asked(name) for name in (*(role.name for role in ROLES), "default")}

    assert {name for name, answer in answers.items() if answer.returncode == 0} == FOR_PEOPLE
    assert all(answers[name].stdout.startswith("ey") for name in FOR_PEOPLE)
    refusals = [answer.stderr for name, answer in answers.items() if name not in FOR_PEOPLE]
    assert all("forbidden" in refusal for refusal in refusals), refusals


def ok(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
