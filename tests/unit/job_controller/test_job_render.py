"""Generated objects: every row of contract.md A.3 to A.5, the defects of G, the manifests of H."""

from __future__ import annotations

from typing import Any

import pytest

from job_controller.domain import names
from job_controller.domain.environment import config_data, endpoint
from job_controller.domain.model import Job, Options, Pod, PodId, PodState, SampleSet
from job_controller.domain.parse import parse_job
from job_controller.domain.policies.validation import find_problems
from job_controller.domain.render import Frame, render_config_map, render_pod, render_service
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.paddlejobs import (
    collective_example,
    make_paddle_job,
    make_role,
    old_habits_example,
    parameter_server_example,
)

GATE = Options(gate_image="example/gate:1")


def job_of(raw: Object) -> Job:
    raw["metadata"] |= {"uid": "uid-1"}
    return parse_job(raw)


def make_job(**spec: Any) -> Job:
    return job_of(make_paddle_job(**spec))


def pods_of(job: Job, ips: dict[str, list[str]]) -> tuple[Pod, ...]:
    return tuple(
        Pod(PodId(role, i), names.pod_name(job.key.name, role, i), f"{role}{i}", PodState.PENDING, ip=ip)
        for role, addresses in ips.items()
        for i, ip in enumerate(addresses)
    )


def render(
    job: Job,
    role: str = "worker",
    index: int = 0,
    *,
    port: int = 36000,
    options: Options | None = None,
    sample_set: SampleSet | None = None,
) -> Object:
    frame = Frame(job, port, options or Options(), sample_set)
    return render_pod(frame, next(r for r in job.spec.roles if r.role == role), index)


def env_of(pod: Object) -> dict[str, Any]:
    return {
        v["name"]: v.get("value", v.get("valueFrom")) for v in pod["spec"]["containers"][0].get("env", ())
    }


POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize(
    ("role", "paddle_role"), [("ps", "PSERVER"), ("worker", "TRAINER"), ("heter", "HETER_TRAINER")]
)
def test_direct_environment_of_every_role(role: str, paddle_role: str) -> None:
    job = make_job(ps=make_role(2), worker=make_role(2), heter=make_role(2))
    assert env_of(render(job, role, 1)) == {
        "POD_IP": POD_IP,
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": paddle_role,
        "PADDLE_TRAINING_ROLE": paddle_role,
    }


@pytest.mark.parametrize(
    ("intranet", "port", "pod_ip"),
    [
        ("PodIP", 36000, POD_IP),
        ("odd", 36000, POD_IP),
        ("Service", 36000, "demo-worker-0"),
        ("Host", 40020, POD_IP),
    ],
)
def test_own_address_by_network(intranet: str, port: int, pod_ip: object) -> None:
    env = env_of(render(make_job(intranet=intranet, worker=make_role(2)), port=port))
    assert env["POD_IP"] == pod_ip
    assert env["PADDLE_CURRENT_ENDPOINT"] == f"$(POD_IP):{port}"
    assert list(env).index("POD_IP") < list(env).index("PADDLE_CURRENT_ENDPOINT")


def test_config_of_a_ps_job_with_gloo_agrees_with_itself() -> None:
    job = job_of(parameter_server_example())
    pods = pods_of(job, {"ps": ["10.1.0.4", "10.1.0.5"], "worker": ["10.1.0.6", "10.1.0.7"]})
    assert config_data(job, 36000, pods) == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.4:36000,10.1.0.5:36000",
        "PADDLE_TRAINER_ENDPOINTS": "10.1.0.6:36000,10.1.0.7:36000",
        "PADDLE_TRAINERS": "10.1.0.6,10.1.0.7",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "10.1.0.4:36018",
    }


def test_a_server_finds_its_rank_in_every_network() -> None:
    """Paddle looks POD_IP:PADDLE_PORT up in the list of servers."""
    for intranet, port in (("PodIP", 36000), ("Service", 36000), ("Host", 40020)):
        job = make_job(intranet=intranet, ps=make_role(2), worker=make_role(1))
        data = config_data(job, port, pods_of(job, {"ps": ["10.0.0.1", "10.0.0.2"], "worker": ["10.0.0.3"]}))
        assert data is not None
        given = env_of(render(job, "ps", 1, port=port))["POD_IP"]
        own = given if isinstance(given, str) else "10.0.0.2"
        assert data["PADDLE_PSERVERS_IP_PORT_LIST"].split(",").index(f"{own}:{data['PADDLE_PORT']}") == 1


def test_service_names_are_known_before_any_pod_exists() -> None:
    job = make_job(intranet="Service", withGloo=2, ps=make_role(1), worker=make_role(2))
    data = config_data(job, 36000, ())
    assert data is not None
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "demo-worker-0:36000,demo-worker-1:36000"
    assert data["PADDLE_TRAINERS"] == "demo-worker-0,demo-worker-1"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "demo-ps-0:36018"
    assert data["PADDLE_WITH_GLOO"] == "2"


@pytest.mark.parametrize(("intranet", "ips"), [("PodIP", ["10.0.0.1", ""]), ("Host", ["10.0.0.1"])])
def test_no_config_before_all_addresses_are_known(intranet: str, ips: list[str]) -> None:
    job = make_job(intranet=intranet, worker=make_role(2))
    assert config_data(job, 36000, pods_of(job, {"worker": ips})) is None


def test_heter_peers_stand_under_the_names_paddle_reads() -> None:
    job = make_job(worker=make_role(1), heter=make_role(1))
    data = config_data(job, 36000, pods_of(job, {"worker": ["10.1.0.6"], "heter": ["10.1.0.8"]})) or {}
    for name in (
        "PADDLE_HETER_ENDPOINTS",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    ):
        assert data[name] == "10.1.0.8:36000"


def test_ipv6_addresses_stand_in_brackets_in_endpoints_only() -> None:
    assert endpoint("fd00::1", 36000) == "[fd00::1]:36000"
    job = make_job(withGloo=1, ps=make_role(1), worker=make_role(1))
    data = config_data(job, 36000, pods_of(job, {"ps": ["fd00::1"], "worker": ["fd00::2"]})) or {}
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "[fd00::2]:36000"
    assert data["PADDLE_TRAINERS"] == "fd00::2"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "[fd00::1]:36018"


@pytest.mark.parametrize(
    "spec",
    [
        {"worker": make_role(2)},
        {"withGloo": 1, "worker": make_role(2)},
        {"withGloo": 0, "ps": make_role(1), "worker": make_role(1)},
        {"withGloo": 1, "ps": make_role(0), "worker": make_role(1)},
    ],
)
def test_no_gloo_without_servers_or_wish(spec: dict[str, Any]) -> None:
    job = make_job(intranet="Service", **spec)
    assert not [k for k in config_data(job, 36000, ()) or {} if "GLOO" in k]


def test_host_network_uses_the_jobs_block_everywhere() -> None:
    job = make_job(intranet="Host", withGloo=1, ps=make_role(1), worker=make_role(1))
    data = config_data(job, 40020, pods_of(job, {"ps": ["192.0.2.1"], "worker": ["192.0.2.2"]})) or {}
    assert data["PADDLE_PORT"] == "40020"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.2:40020"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "192.0.2.1:40038"
    spec = render(job, port=40020, options=GATE)["spec"]
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "ports" not in spec["containers"][0]
    assert "hostname" not in spec


def test_elastic_jobs_get_their_variables_and_no_config() -> None:
    job = job_of(old_habits_example())
    pod = render(job, port=40020, options=Options(elastic_server="etcd.ns:2379"))
    env = env_of(pod)
    assert env["PADDLE_ELASTIC_JOB_ID"] == "default-legacy"
    assert env["PADDLE_ELASTIC_NP"] == "3"
    assert env["PADDLE_ELASTIC_TIMEOUT"] == "60"
    assert env["PADDLE_ELASTIC_SERVER"] == "etcd.ns:2379"
    assert "envFrom" not in pod["spec"]["containers"][0]
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert config_data(job, 40020, pods_of(job, {"worker": ["a", "b", "c"]})) is None
    assert "PADDLE_ELASTIC_SERVER" not in env_of(render(job, port=40020))


def test_elastic_without_workers_is_no_crash() -> None:
    assert env_of(render(make_job(elastic=1, ps=make_role(1)), "ps"))["PADDLE_ELASTIC_NP"] == "0"


def test_users_environment_wins_over_the_config_and_loses_to_the_direct_one() -> None:
    role = make_role(2)
    role["template"]["spec"]["containers"][0] |= {
        "env": [
            {"name": "PADDLE_PORT", "value": "1"},
            {"name": "PADDLE_TRAINER_ID", "value": "9"},
            {"name": "PADDLE_CURRENT_ENDPOINT", "value": "mine:1"},
        ],
        "envFrom": [{"secretRef": {"name": "own"}}],
    }
    container = render(make_job(worker=role))["spec"]["containers"][0]
    assert [v["name"] for v in container["env"]] == [
        "PADDLE_PORT",
        "PADDLE_CURRENT_ENDPOINT",
        "POD_IP",
        "PADDLE_TRAINER_ID",
        "TRAINING_ROLE",
        "PADDLE_TRAINING_ROLE",
    ]
    assert container["env"][0]["value"] == "1"
    assert container["env"][3]["value"] == "0"
    # Of two sources with one key the later wins.
    assert container["envFrom"] == [{"configMapRef": {"name": "demo"}}, {"secretRef": {"name": "own"}}]


def test_only_the_first_container_is_touched() -> None:
    role = make_role(1, containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "y"}])
    job = make_job(intranet="Service", sampleSetRef={"name": "set", "mountPath": "/d"}, worker=role)
    first, second = render(job)["spec"]["containers"]
    assert second == {"name": "b", "image": "y"}
    assert {"env", "envFrom", "ports", "volumeMounts"} <= set(first)


def test_the_users_template_is_never_changed() -> None:
    raw = make_paddle_job(
        intranet="Service", sampleSetRef={"name": "set", "mountPath": "/d"}, worker=make_role(1)
    )
    before = repr(raw["spec"])
    render(job_of(raw), options=GATE, sample_set=SampleSet("Ready", 1))
    assert repr(raw["spec"]) == before


def test_pod_identity() -> None:
    role = make_role(1)
    role["template"]["metadata"] = {
        "name": "other",
        "namespace": "elsewhere",
        "labels": {"team": "a", "paddle-res-name": "fake"},
        "annotations": {"note": "x"},
        "finalizers": ["example.com/keep"],
    }
    metadata = render(make_job(worker=role))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo-worker-0", "default")
    assert metadata["labels"] == {
        "team": "a",
        "paddle-res-name": "demo-worker-0",
        "paddle-res-type": "worker",
    }
    assert metadata["annotations"] == {"note": "x", "paddle-resource": "worker"}
    assert metadata["finalizers"] == ["example.com/keep"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "name": "demo",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_service_network_names_pods_and_opens_the_base_port() -> None:
    job = make_job(intranet="Service", worker=make_role(2))
    spec = render(job, index=1)["spec"]
    assert spec["hostname"] == spec["subdomain"] == "demo-worker-1"
    assert spec["containers"][0]["ports"] == [{"containerPort": 36000}]
    own = make_role(2, containers=[{"name": "m", "ports": [{"containerPort": 36000, "name": "rpc"}]}])
    again = render(make_job(intranet="Service", worker=own))["spec"]["containers"][0]
    assert again["ports"] == [{"containerPort": 36000, "name": "rpc"}]


def test_service() -> None:
    service = render_service(make_job(worker=make_role()), PodId("worker", 0), 36000)
    assert service["metadata"]["name"] == "demo-worker-0"
    spec = service["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["selector"] == {"paddle-res-name": "demo-worker-0"}
    assert [(p["name"], p["port"]) for p in spec["ports"]] == [(f"p-{k}", 36000 + k) for k in range(20)]


def test_config_map() -> None:
    config = render_config_map(make_job(worker=make_role()), {"A": "1"})
    assert config["metadata"]["name"] == "demo"
    assert config["metadata"]["labels"] == {"paddle-res-name": "demo"}
    assert config["data"] == {"A": "1"}


def test_gate_waits_for_a_word_in_the_pod_network() -> None:
    pod = render(make_job(worker=make_role(2, initContainers=[{"name": "own"}])), options=GATE)
    own, gate = pod["spec"]["initContainers"]
    assert own == {"name": "own"}
    assert gate == {
        "name": "coord-paddle",
        "image": "example/gate:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
        "command": ["/gate", "--file", "/etc/paddlewheel/gate/released"],
        "volumeMounts": [{"name": "paddlewheel-gate", "mountPath": "/etc/paddlewheel/gate"}],
    }
    (volume,) = pod["spec"]["volumes"]
    (item,) = volume["downwardAPI"]["items"]
    assert item == {
        "path": "released",
        "fieldRef": {"fieldPath": "metadata.annotations['paddlepaddle.org/released']"},
    }


def test_gate_waits_for_names_in_the_service_network() -> None:
    pod = render(make_job(intranet="Service", ps=make_role(1), worker=make_role(2)), options=GATE)
    (gate,) = pod["spec"]["initContainers"]
    assert gate["command"] == ["/gate", "--resolve", "demo-worker-0", "demo-worker-1"]
    assert "volumes" not in pod["spec"]


@pytest.mark.parametrize(
    ("spec", "options"),
    [({"worker": make_role(2)}, Options()), ({"elastic": 1, "worker": make_role(2)}, GATE)],
)
def test_no_gate(spec: dict[str, Any], options: Options) -> None:
    assert "initContainers" not in render(make_job(**spec), options=options)["spec"]


REF = {"name": "imagenet", "mountPath": "/data"}


@pytest.mark.parametrize("role", ["ps", "worker", "heter"])
def test_every_role_mounts_the_data_set(role: str) -> None:
    job = make_job(sampleSetRef=REF, ps=make_role(1), worker=make_role(1), heter=make_role(1))
    spec = render(job, role)["spec"]
    assert spec["volumes"] == [{"name": "imagenet", "persistentVolumeClaim": {"claimName": "imagenet"}}]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "imagenet", "mountPath": "/data", "mountPropagation": "HostToContainer"}
    ]


def test_users_own_volume_and_mount_stay() -> None:
    role = make_role(1, volumes=[{"name": "imagenet", "emptyDir": {}}])
    role["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "x", "mountPath": "/data"}]
    spec = render(make_job(sampleSetRef=REF, worker=role))["spec"]
    assert spec["volumes"] == [{"name": "imagenet", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "x", "mountPath": "/data"}]


def test_a_set_name_that_is_no_volume_name_gets_another_volume() -> None:
    job = make_job(sampleSetRef={"name": "a.b", "mountPath": "/d"}, worker=make_role(1))
    (volume,) = render(job)["spec"]["volumes"]
    assert volume == {"name": "sample-set", "persistentVolumeClaim": {"claimName": "a.b"}}


def test_placement_is_added_to_the_users_own_affinity() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    mine = {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
    own = {
        "podAntiAffinity": {"x": 1},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": [mine],
        },
    }
    job = make_job(sampleSetRef=REF, worker=make_role(2, affinity=own))
    affinity = render(job, index=1, sample_set=SampleSet("Ready", 2))["spec"]["affinity"]
    assert affinity["podAntiAffinity"] == {"x": 1}
    node = affinity["nodeAffinity"]
    assert node["requiredDuringSchedulingIgnoredDuringExecution"] == required
    first, second = node["preferredDuringSchedulingIgnoredDuringExecution"]
    assert first == mine
    (expression,) = second["preference"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("paddlepaddle.org/juicefs-default.imagenet", ["1"])
    assert "affinity" not in render(make_job(sampleSetRef=REF, worker=make_role()), sample_set=None)["spec"]


def test_last_words_of_a_failed_container_reach_the_status() -> None:
    assert render(make_job(worker=make_role()))["spec"]["containers"][0]["terminationMessagePolicy"] == (
        "FallbackToLogsOnError"
    )
    own = make_role(1, containers=[{"name": "m", "terminationMessagePolicy": "File"}])
    assert render(make_job(worker=own))["spec"]["containers"][0]["terminationMessagePolicy"] == "File"


@pytest.mark.parametrize("example", [parameter_server_example, collective_example, old_habits_example])
def test_the_contracts_manifests_are_accepted_and_rendered(example: Any) -> None:
    job = job_of(example())
    assert find_problems(job) == ()
    rendered = [render(job, p.role, p.index, options=GATE) for p in job.spec.pod_ids()]
    assert len({p["metadata"]["name"] for p in rendered}) == len(job.spec.pod_ids())


def test_the_collective_example_keeps_its_scheduler_and_its_resources() -> None:
    spec = render(job_of(collective_example()), index=3)["spec"]
    assert spec["schedulerName"] == "volcano"
    assert spec["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert spec["restartPolicy"] == "OnFailure"
