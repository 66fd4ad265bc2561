"""Pods that ask whether they may start, which costs no write for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from socket import EAI_NONAME, gaierror
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tests.unit.job_controller.builders import make_job, render
from tests.unit.job_controller.conftest import GATED, JobHarness, OpenHarness

from job_controller.core.model import Options
from job_controller.features.start_gate import endpoint as gate_endpoint
from job_controller.timing import GATE_URL_INTERVAL_SECONDS
from paddlewheel.contracts.crds.paddlejob import World
from paddlewheel.contracts.generated.jobs_v1 import JobStuck
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Object
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

URL = GATED["gate_url"]


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[JobHarness]:
    async with open_harness(**GATED) as running:
        yield running


async def gate_of(harness: JobHarness, pod: str) -> Object:
    containers = (await harness.get(Key("default", pod), PODS))["spec"]["initContainers"]
    return cast(Object, containers[-1])


async def question(harness: JobHarness, pod: str) -> str:
    """The URL that the pod's gate asks, without its address."""
    command = (await gate_of(harness, pod))["command"]
    assert command[:2] == ["/gate", "--ask"]
    return str(command[2]).removesuffix("&ip=$(POD_IP)")


async def ask(harness: JobHarness, url: str, ip: str) -> int:
    """The status of the answer."""
    return (await answer(harness, url, ip)).status


async def awaited(harness: JobHarness, url: str) -> list[str]:
    """The names that the pod has to resolve, in a positive answer."""
    found = await answer(harness, url, "10.0.0.1")
    assert found.status == 200
    return (found.text or "").split()


async def answer(harness: JobHarness, url: str, ip: str) -> web.Response:
    """The answer to the gate of a pod with this address."""
    parts = urlsplit(f"{url}&ip={ip}")
    *_, namespace, job, role, index = parts.path.split("/")
    info = {"namespace": namespace, "job": job, "role": role, "index": index}
    request = make_mocked_request("GET", f"{parts.path}?{parts.query}", match_info=info)
    (route,) = [r for r in harness.replica.operator.routes if r.method == "GET"]
    return cast(web.Response, await route.handler(request))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_endpoint, "GATE_POLL_TIMEOUT_SECONDS", 0.01)


async def test_a_pod_asks_for_its_place_in_its_epoch_of_its_job(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(ps=make_role(1), worker=make_role(2)))
    await harness.settle(key)
    uid = (await harness.get(key))["metadata"]["uid"]
    parts = urlsplit(await question(harness, "demo-worker-1"))
    assert f"{parts.scheme}://{parts.netloc}" == URL
    assert parts.path == "/v1/gate/default/demo/worker/1"
    assert dict(parse_qsl(parts.query)) == {"uid": uid, "epoch": "0"}
    env = (await gate_of(harness, "demo-worker-1"))["env"]
    assert env == [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


@pytest.mark.usefixtures("impatient")
async def test_a_pod_may_start_once_the_config_map_names_it_where_it_is(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(ps=make_role(1), worker=make_role(2)))
    await harness.settle(key)
    url, server = await question(harness, "demo-worker-1"), await question(harness, "demo-ps-0")
    assert await ask(harness, url, "10.0.0.3") == 202
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.config(key))["PADDLE_TRAINERS"] == "10.0.0.2,10.0.0.3"
    assert await ask(harness, url, "10.0.0.3") == 200
    assert (await answer(harness, server, "10.0.0.1")).text == "", "there are no names in the addresses"
    assert await ask(harness, server, "10.0.0.1") == 200
    assert await ask(harness, url, "10.0.0.2") == 202, "that is another pod's address"
    assert await ask(harness, url.replace("worker/1", "worker/2"), "10.0.0.3") == 202
    assert await ask(harness, url.replace("epoch=0", "epoch=1"), "10.0.0.3") == 202
    assert await ask(harness, url.replace("uid=", "uid=x"), "10.0.0.3") == 202
    assert await ask(harness, url.replace("/demo/", "/other/"), "10.0.0.3") == 202


@pytest.mark.parametrize(
    "wrong",
    [("worker/1", "boss/1"), ("worker/1", "worker/x"), ("epoch=0", "epoch=-1"), ("1?", f"{'9' * 40}?")],
)
async def test_a_question_that_no_gate_asks_is_refused(harness: JobHarness, wrong: tuple[str, str]) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    assert await ask(harness, (await question(harness, "demo-worker-1")).replace(*wrong), "10.0.0.1") == 400


async def test_a_gate_that_waits_learns_of_the_config_map_at_once(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    urls = [await question(harness, name) for name in await harness.pod_names()]
    asking = [asyncio.create_task(ask(harness, url, f"10.0.0.{i + 1}")) for i, url in enumerate(urls)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in asking)
    await harness.run_pods()
    await harness.settle(key)
    assert await asyncio.gather(*asking) == [200, 200]


async def test_a_pod_of_a_new_epoch_does_not_start_by_the_addresses_of_the_former_one(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2), backoffLimit=1))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(key)
    monkeypatch.setattr(gate_endpoint, "GATE_POLL_TIMEOUT_SECONDS", 0.01)
    url = await question(harness, "demo-worker-0")
    assert "epoch=1" in url
    assert await ask(harness, url, "10.0.0.1") == 202
    await harness.run_pods()
    await harness.settle(key)
    assert await ask(harness, url, "10.0.0.1") == 200


@pytest.mark.usefixtures("impatient")
async def test_gates_beyond_the_most_that_may_wait_are_told_to_ask_again(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    monkeypatch.setattr(gate_endpoint, "GATE_POLL_TIMEOUT_SECONDS", 30.0)
    monkeypatch.setattr(gate_endpoint, "MOST", 0)
    assert await ask(harness, await question(harness, "demo-worker-0"), "10.0.0.1") == 202


@pytest.mark.parametrize("workers", [1, 40])
async def test_a_job_costs_one_write_for_each_pod_and_few_more(harness: JobHarness, workers: int) -> None:
    with harness.counted_writes() as writes:
        key = await harness.create(make_paddle_job(worker=make_role(workers)))
        await harness.settle(key)
        await harness.run_pods()
        await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    playing = {("create", "paddlejobs"): 1, ("patch-status", "pods"): workers}
    ours = sum(writes.values()) - sum(playing.values())
    assert ours <= workers + 8, dict(writes)


@pytest.mark.usefixtures("impatient")
async def test_by_name_a_pod_learns_the_names_of_its_role_in_its_job(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(intranet="Service", ps=make_role(1), worker=make_role(2)))
    await harness.settle(key)
    url, server = await question(harness, "demo-worker-1"), await question(harness, "demo-ps-0")
    assert await awaited(harness, url) == ["demo-worker-0", "demo-worker-1"]
    assert await awaited(harness, server) == ["demo-ps-0"]
    others = [("uid=", "uid=x"), ("epoch=0", "epoch=1"), ("worker/1", "worker/2"), ("worker/1", "heter/0")]
    for change in (*others, ("/demo/", "/other/"), ("/default/", "/elsewhere/")):
        found = await answer(harness, url.replace(*change), "10.0.0.1")
        assert (found.status, found.text) == (202, None), change


async def test_by_name_a_pod_learns_names_after_a_scaling_only_if_they_are_still_wanted(
    harness: JobHarness,
) -> None:
    key = await harness.create(make_paddle_job(intranet="Service", worker=make_role(3)))
    await harness.settle(key)
    url = await question(harness, "demo-worker-0")
    assert len(await awaited(harness, url)) == 3
    await harness.patch(key, {"spec": {"worker": {"replicas": 2}}})
    await harness.settle(key)
    assert await awaited(harness, url) == ["demo-worker-0", "demo-worker-1"]


async def test_by_name_a_pod_does_not_wait_for_a_rank_that_has_succeeded(harness: JobHarness) -> None:
    """Its name no longer resolves."""
    one_by_one = {"restartScope": "Pod"}
    key = await harness.to_running(
        make_paddle_job(intranet="Service", worker=make_role(2), failurePolicy=one_by_one)
    )
    await harness.end_pods("demo-worker-0")
    await harness.settle(key)
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    assert await awaited(harness, await question(harness, "demo-worker-1")) == ["demo-worker-1"]


async def test_by_name_elastic_pods_wait_for_names_too(harness: JobHarness) -> None:
    """They have no ConfigMap."""
    key = await harness.create(make_paddle_job(intranet="Service", elastic=1, worker=make_role(2)))
    await harness.settle(key)
    assert not await harness.exists(key, CONFIG_MAPS)
    names = await awaited(harness, await question(harness, "demo-worker-0"))
    assert names == ["demo-worker-0", "demo-worker-1"]


async def test_by_name_a_worker_beyond_those_that_train_waits_until_it_is_wanted(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(intranet="Service", worker=make_role(2)))
    await harness.settle(key)
    url = (await question(harness, "demo-worker-1")).replace("worker/1", "worker/2")
    asking = asyncio.create_task(ask(harness, url, "10.0.0.3"))
    await asyncio.sleep(0)
    assert not asking.done()
    await harness.patch(key, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(key)
    assert await asking == 200


async def test_by_name_a_pod_that_joins_others_starts_without_an_answer_as_before(
    harness: JobHarness,
) -> None:
    """The ConfigMap may name a rank that has succeeded, whose name does not resolve."""
    key = await harness.to_running(
        make_paddle_job(intranet="Service", worker=make_role(2), failurePolicy={"restartScope": "Pod"})
    )
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    assert (await gate_of(harness, "demo-worker-1"))["command"][3:] == ["--fallback", "30s"]


NO_SERVICES = [
    {"dnsPolicy": "None"},
    {"dnsPolicy": "Default"},
    {"hostNetwork": True},
    {"hostNetwork": True, "dnsPolicy": "ClusterFirst"},
]
"""Pods that resolve no name of a Service."""


@dataclass
class Names:
    """The DNS. Names are unknown while there is no address."""

    addresses: list[str]
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[object]:
        self.asked.append((host, port))
        if not self.addresses:
            raise gaierror(EAI_NONAME, "unknown")
        return [(0, 0, 0, "", (address, port)) for address in self.addresses]


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names(["10.96.0.9"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
    return names


async def asked_host(harness: JobHarness, job: str, **spec: Any) -> str:
    """The host and port that the gate of such a pod asks."""
    network = spec.pop("intranet", "PodIP")
    key = await harness.create(make_paddle_job(job, worker=make_role(1, **spec), intranet=network))
    await harness.settle(key)
    return urlsplit(await question(harness, f"{job}-worker-0")).netloc


@pytest.mark.parametrize("spec", NO_SERVICES)
async def test_a_pod_that_finds_no_service_asks_its_address(
    harness: JobHarness, dns: Names, spec: Object
) -> None:
    assert await asked_host(harness, "demo", **spec) == "10.96.0.9:8080"
    assert await asked_host(harness, "other", **spec) == "10.96.0.9:8080"
    assert dns.asked == [("job-controller.paddle-system.svc", 8080)], "once"


@pytest.mark.parametrize(
    "spec",
    [
        {"dnsPolicy": "ClusterFirst"},
        {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
        {"intranet": "Host"},
    ],
)
@pytest.mark.usefixtures("dns")
async def test_a_pod_that_finds_services_asks_by_name(harness: JobHarness, spec: Object) -> None:
    assert await asked_host(harness, "demo", **spec) == "job-controller.paddle-system.svc:8080"


async def test_an_address_of_ipv6_has_brackets(harness: JobHarness, dns: Names) -> None:
    dns.addresses = ["fd00::9"]
    assert await asked_host(harness, "demo", hostNetwork=True) == "[fd00::9]:8080"


async def test_pods_wait_for_an_address_that_is_not_known_and_are_created_when_it_is(
    harness: JobHarness, dns: Names
) -> None:
    """A gate with a name that it cannot resolve might never open."""
    dns.addresses = []
    key = await harness.create(make_paddle_job(worker=make_role(1, hostNetwork=True)))
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Pending", "NoGateAddress")
    assert "check Service job-controller" in status["message"]
    assert not await harness.pod_names()
    dns.addresses = ["10.96.0.9"]
    await harness.advance(GATE_URL_INTERVAL_SECONDS)
    await harness.settle(key)
    assert urlsplit(await question(harness, "demo-worker-0")).netloc == "10.96.0.9:8080"


async def test_an_address_that_changes_is_used_for_later_pods(harness: JobHarness, dns: Names) -> None:
    assert await asked_host(harness, "demo", hostNetwork=True) == "10.96.0.9:8080"
    dns.addresses = ["10.96.0.10"]
    await harness.advance(GATE_URL_INTERVAL_SECONDS)
    assert await asked_host(harness, "other", hostNetwork=True) == "10.96.0.10:8080"
    dns.addresses = []
    await harness.advance(GATE_URL_INTERVAL_SECONDS)
    assert await asked_host(harness, "third", hostNetwork=True) == "10.96.0.10:8080", "the last one known"


NO_ANSWER = "no answer for 30s: dial tcp 10.96.0.9:8080: i/o timeout"


def passed_gate(message: str) -> Object:
    """The gate of a pod has passed; its own container runs."""
    gate = {"name": "coord-paddle", "state": {"terminated": {"exitCode": 0, "message": message}}}
    return {"initContainerStatuses": [gate]}


async def test_a_gate_without_an_answer_is_a_condition_an_event_and_a_fact_once(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    await harness.run_pods()
    for pod in ("demo-worker-0", "demo-worker-1"):
        await harness.set_status(Key("default", pod), passed_gate(NO_ANSWER), PODS)
        await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["stuckOn"]) == ("Running", ["GateUnanswered"])
    message = (await harness.condition(key, "GateUnanswered"))["message"]
    assert message.startswith(
        f"the gate of pod demo-worker-0 started the pod without an answer ({NO_ANSWER}); "
    )
    stuck = [event.data for event in harness.published if isinstance(event.data, JobStuck)]
    assert [(fact.reason, fact.message) for fact in stuck] == [("GateUnanswered", message)]
    warned = [event for event in await harness.kubernetes_events() if event.type == "Warning"]
    assert [(event.reason, event.message) for event in warned] == [("GateUnanswered", message)]
    await harness.set_status(Key("default", "demo-worker-0"), passed_gate(""), PODS)
    await harness.set_status(Key("default", "demo-worker-1"), passed_gate(""), PODS)
    await harness.settle(key)
    assert (await harness.condition(key, "GateUnanswered"))["status"] == "False"


async def test_a_gate_with_an_answer_is_no_condition(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(1)))
    await harness.settle(key)
    await harness.run_pods()
    await harness.set_status(Key("default", "demo-worker-0"), passed_gate(""), PODS)
    await harness.settle(key)
    assert "GateUnanswered" not in await types(harness, key)


async def test_nothing_but_its_gate_holds_a_worker_beyond_those_that_train() -> None:
    job = make_job(worker={**make_role(4), "requests": 2})
    status = replace(job.status, world=World(workers=2, of=4))
    options = Options(gate_image="example/gate:1", gate_url=URL)
    pods = [render(replace(job, status=status), index=index, options=options) for index in (1, 2)]
    gates = [pod["spec"]["initContainers"][-1]["command"] for pod in pods]
    assert ["--fallback" in command for command in gates] == [True, False]


async def test_a_pod_that_is_made_beside_a_configmap_does_not_start_without_an_answer(
    harness: JobHarness,
) -> None:
    """The ConfigMap names the pod that had its place before."""
    key = await harness.to_running(
        make_paddle_job(worker=make_role(2), failurePolicy={"restartScope": "Pod"})
    )
    commands = [(await gate_of(harness, "demo-worker-1"))["command"]]
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    commands.append((await gate_of(harness, "demo-worker-1"))["command"])
    assert ["--fallback" in command for command in commands] == [True, False]


async def hold_at_gates(harness: JobHarness, *pods: str) -> None:
    """They have addresses, and their gates run."""
    gate = {"name": "coord-paddle", "state": {"running": {}}}
    for index, pod in enumerate(pods):
        await harness.patch(Key("default", pod), {"spec": {"nodeName": f"node-{index}"}}, PODS)
        status = {"phase": "Pending", "podIP": f"10.0.0.{index + 1}", "initContainerStatuses": [gate]}
        await harness.set_status(Key("default", pod), status, PODS)
    await harness.drain_queue()


async def types(harness: JobHarness, key: Key) -> set[str]:
    """The types of the job's conditions."""
    return {condition["type"] for condition in (await harness.status(key))["conditions"]}


@pytest.mark.parametrize(
    ("network", "what_to_do"),
    [("PodIP", "connect to the Service job-controller"), ("Service", "resolve names by the DNS")],
)
async def test_a_gate_that_has_nothing_more_to_wait_for_is_named_within_two_minutes(
    harness: JobHarness, network: str, what_to_do: str
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2), intranet=network))
    await harness.settle(key)
    await hold_at_gates(harness, "demo-worker-0")
    await harness.patch(Key("default", "demo-worker-1"), {"spec": {"nodeName": "node-1"}}, PODS)
    await harness.advance(120)
    assert "GateUnanswered" not in await types(harness, key), "the other has no address"
    await hold_at_gates(harness, "demo-worker-0", "demo-worker-1")
    await harness.advance(59)
    assert "GateUnanswered" not in await types(harness, key)
    await harness.advance(60)
    unanswered = await harness.condition(key, "GateUnanswered")
    assert unanswered["message"].startswith(
        "the gate of pod demo-worker-0 keeps it from starting (no answer for 60 s); "
    )
    assert what_to_do in unanswered["message"]
    assert (await harness.status(key))["stuckOn"] == ["GateUnanswered"]
    await harness.run_pods()
    for pod in ("demo-worker-0", "demo-worker-1"):
        await harness.set_status(Key("default", pod), passed_gate(""), PODS)
    await harness.settle(key)
    assert (await harness.condition(key, "GateUnanswered"))["status"] == "False"


async def test_a_finished_job_does_not_look_at_gates(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2), cleanPodPolicy="Never"))
    await harness.settle(key)
    await hold_at_gates(harness, "demo-worker-0")
    await harness.end_pods("demo-worker-1", phase="Failed")
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Failed"
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert (await harness.reconcile_stale(key)).requeue_after is None
