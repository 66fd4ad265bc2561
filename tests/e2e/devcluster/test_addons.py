"""Requests through an embedded cluster's gateway: to plain Services, and to Knative from zero and back."""

from __future__ import annotations

import http.client
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.e2e.echo import ECHO, Served, write_echo

from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.addons.ready import NAMESPACES
from paddlewheel.devcluster.cluster import down, up
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.status import RUNNING, status
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

ROUTE = "echo.example.com"


class Client:
    """One kept connection to the gateway; `pod` gave the last answer."""

    pod = ""

    def __init__(self, served: Served, name: str) -> None:
        self._connection = http.client.HTTPConnection(served.host, 80, timeout=60)
        self._headers = {"Host": name}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str = "/") -> tuple[int, str]:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        self.pod = answer.getheader("X-Pod", "")
        return answer.status, answer.read().decode().strip()


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of an image with a small HTTP server."""
    return write_echo(tmp_path_factory.mktemp("echo"))


@pytest.fixture(scope="module")
def with_gateway(echo: Path, test_run: TestRun) -> Iterator[Served]:
    """A new cluster with the gateway and two Deployments, `one` and `two`, behind it."""
    name = test_run.claim_cluster("addons")
    try:
        served = Served(up(ClusterSpec(name, addons=("gateway",)), images=(echo,)))
        served.apply(*deployed("one"), *deployed("two"), make_route(one=80, two=20))
        for deployment in ("one", "two"):
            served.kubectl("rollout", "status", f"deployment/{deployment}", "--timeout=120s")
        yield served
    finally:
        down(name)


@pytest.fixture(scope="module")
def with_knative(with_gateway: Served) -> Served:
    """The same cluster, on which Knative was installed while it ran."""
    up(ClusterSpec(with_gateway.cluster.name, addons=("knative",)))
    return with_gateway


def deployed(name: str) -> tuple[Mapping[str, Any], ...]:
    """A Deployment that finishes its requests before it ends, and its Service."""
    container = {
        "name": "main",
        "image": ECHO,
        "env": [{"name": "TARGET", "value": name}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        # The gateway hears of it within a second; until then it still sends requests.
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": ports},
        },
    )


def make_route(**weights: int) -> Mapping[str, Any]:
    """Requests for ROUTE by weight."""
    backends = [{"name": name, "port": 80, "weight": weight} for name, weight in weights.items()]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "echo"},
        "spec": {
            "parentRefs": [{"name": "paddlewheel", "namespace": NAMESPACES["gateway"]}],
            "hostnames": [ROUTE],
            "rules": [{"backendRefs": backends}],
        },
    }


def make_service(text: str, *traffic: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Knative Service that is scaled to zero as soon as Knative allows."""
    container = {"image": ECHO, "env": [{"name": "TARGET", "value": text}]}
    template = {
        "metadata": {"annotations": {"autoscaling.knative.dev/window": "6s"}},
        "spec": {"containers": [container]},
    }
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "hello"},
        "spec": {"template": template, **({"traffic": traffic} if traffic else {})},
    }


def counted(served: Served) -> Counter[str]:
    """Requests by backend, summed over the gateway's pods."""
    pattern = re.compile(
        r'^traefik_service_requests_total\{.*-svc-default-(\w+)-\d+@kubernetesgateway"} (\d+)', re.M
    )
    counts: Counter[str] = Counter()
    for pod in served.items("pods", "--namespace", NAMESPACES["gateway"]):
        with urlopen(f"http://{pod['status']['podIP']}:9100/metrics", timeout=10) as answer:
            for backend, count in pattern.findall(answer.read().decode()):
                counts[backend] += int(count)
    return counts


def assert_shared(answers: Counter[tuple[int, str]], **shares: int) -> None:
    """All requests succeeded, and about that many for each: a change of any route begins a new round."""
    assert {status for status, _ in answers} == {200}
    assert {text: pytest.approx(share, abs=5) for text, share in shares.items()} == {
        text: count for (_, text), count in answers.items()
    }


def uids(served: Served, *selection: str) -> set[str]:
    """Of the pods that exist."""
    return {pod["metadata"]["uid"] for pod in served.items("pods", *selection)}


def replicas(served: Served) -> list[int]:
    """Replicas that Knative wants of each revision."""
    found = served.items("deployments", "--selector", "serving.knative.dev/service=hello")
    return [deployment["spec"]["replicas"] for deployment in found]


async def test_requests_are_shared_by_weight_and_counted_by_backend(with_gateway: Served) -> None:
    with Client(with_gateway, ROUTE) as client:
        await eventually(lambda: client.get()[0] == 200)
        before = counted(with_gateway)
        answers = Counter(client.get() for _ in range(100))
    assert_shared(answers, one=80, two=20)
    after = counted(with_gateway)
    assert {(200, name): after[name] - before[name] for name in ("one", "two")} == answers


def test_a_name_without_a_route_is_not_found(with_gateway: Served) -> None:
    with Client(with_gateway, "nobody.example.com") as client:
        assert client.get()[0] == 404


async def test_no_request_fails_while_all_pods_are_replaced(with_gateway: Served) -> None:
    answers: Counter[int] = Counter()
    done = threading.Event()
    old = uids(with_gateway, "--namespace", "default")

    def ask() -> None:
        with Client(with_gateway, ROUTE) as client:
            while not done.is_set():
                answers[client.get("/?ms=10")[0]] += 1

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    try:
        with_gateway.kubectl("rollout", "restart", "deployment/one", "deployment/two")
        await eventually(lambda: not old & uids(with_gateway, "--namespace", "default"), within=120)
    finally:
        done.set()
        for thread in asking:
            thread.join()
    assert set(answers) == {200}


def test_installing_again_leaves_what_runs_alone(with_gateway: Served) -> None:
    before = uids(with_gateway, "--namespace", NAMESPACES["gateway"])
    up(ClusterSpec(with_gateway.cluster.name, addons=("gateway",)))
    assert uids(with_gateway, "--namespace", NAMESPACES["gateway"]) == before
    assert status(with_gateway.cluster.name).state == RUNNING


async def test_knative_scales_from_zero_to_zero_and_no_request_fails(with_knative: Served) -> None:
    with_knative.apply(make_service("first"))
    with_knative.kubectl("wait", "ksvc/hello", "--for=condition=Ready", "--timeout=120s")
    pods = set()
    with Client(with_knative, "hello.default.example.com") as client:
        for _ in range(2):
            await eventually(lambda: replicas(with_knative) == [0])
            assert client.get() == (200, "first")
            pods.add(client.pod)
    assert len(pods) == 2, "the second time it was not from zero"


async def test_knative_shares_requests_between_revisions(with_knative: Served) -> None:
    with_knative.apply(make_service("first"))
    with_knative.kubectl("wait", "ksvc/hello", "--for=condition=Ready", "--timeout=120s")
    (old,) = with_knative.items("revisions")
    new = {"latestRevision": True, "percent": 20}
    stable = {"revisionName": old["metadata"]["name"], "percent": 80}
    with_knative.apply(make_service("second", stable, new))
    with Client(with_knative, "hello.default.example.com") as client:
        await eventually(lambda: "second" in {client.get()[1] for _ in range(10)}, within=120)
        answers = Counter(client.get() for _ in range(100))
    assert_shared(answers, first=80, second=20)


def test_status_names_both_addons(with_knative: Served) -> None:
    seen = status(with_knative.cluster.name)
    assert [(addon.name, addon.ready) for addon in seen.addons] == [("gateway", True), ("knative", True)]
    assert {addon.url for addon in seen.addons} == {f"http://{with_knative.host}"}


async def test_a_cluster_that_was_stopped_comes_back_with_its_addons(with_knative: Served) -> None:
    name = with_knative.cluster.name
    namespace.end(with_knative.cluster.dirs.plan)
    assert [addon.ready for addon in status(name).addons] == [False, False]
    up(ClusterSpec(name))
    assert status(name).state == RUNNING
    with Client(with_knative, "hello.default.example.com") as client:
        await eventually(lambda: client.get()[0] == 200)
