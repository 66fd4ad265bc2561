"""Generated objects: every row of contract.md A.3 to A.5, the defects of G, the manifests of H."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.builders import GATE, job_of, make_job, render

from job_controller.core.model import Options
from job_controller.core.parts import SampleSet
from job_controller.core.pods import PodId
from job_controller.core.render import render_config_map, render_service
from paddlewheel.testkit.paddlejobs import (
    collective_example,
    make_paddle_job,
    make_role,
    old_habits_example,
    parameter_server_example,
)

LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def test_only_the_first_container_gets_what_training_needs() -> None:
    role = make_role(1, containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "y"}])
    job = make_job(intranet="Service", sampleSetRef={"name": "set", "mountPath": "/d"}, worker=role)
    first, second = render(job)["spec"]["containers"]
    assert second == {"name": "b", "image": "y", **LAST_WORDS}
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
        "labels": {"team": "a", "paddle-res-name": "fake", "paddlepaddle.org/paddlejob": "other"},
        "annotations": {"note": "x"},
        "finalizers": ["example.com/keep"],
    }
    metadata = render(make_job(worker=role))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo-worker-0", "default")
    assert metadata["labels"] == {
        "team": "a",
        "paddle-res-name": "demo-worker-0",
        "paddle-res-type": "worker",
        "paddlepaddle.org/paddlejob": "demo",
    }
    digest = metadata["annotations"].pop("paddlepaddle.org/template")
    assert len(digest) == 18
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
    assert config["metadata"]["labels"] == {"paddle-res-name": "demo", "paddlepaddle.org/paddlejob": "demo"}
    assert config["data"] == {"A": "1"}


URL = "http://job-controller.paddle-system.svc:8080/v1/gate/default/demo"
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def test_the_gate_is_the_last_init_container_and_asks() -> None:
    pod = render(make_job(worker=make_role(2, initContainers=[{"name": "own"}])), options=GATE)
    own, gate = pod["spec"]["initContainers"]
    assert own == {"name": "own", **LAST_WORDS}
    assert gate == {
        "name": "coord-paddle",
        "image": "example/gate:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "env": [POD_IP],
        "command": ["/gate", "--ask", f"{URL}/worker/0?uid=uid-1&epoch=0&ip=$(POD_IP)", "--fallback", "30s"],
    }
    assert "volumes" not in pod["spec"]


@pytest.mark.parametrize(
    ("role", "key"), [("worker", "PADDLE_TRAINER_ENDPOINTS"), ("ps", "PADDLE_PSERVERS_IP_PORT_LIST")]
)
def test_by_name_a_gate_without_an_answer_waits_for_the_names_of_the_config_map(role: str, key: str) -> None:
    pod = render(make_job(intranet="Service", ps=make_role(1), worker=make_role(2)), role, options=GATE)
    (gate,) = pod["spec"]["initContainers"]
    assert gate["command"] == [
        *("/gate", "--ask", f"{URL}/{role}/0?uid=uid-1&epoch=0&ip=$(POD_IP)"),
        *("--fallback", "30s", "--resolve", "$(ENDPOINTS)"),
    ]
    ref = {"configMapKeyRef": {"name": "demo", "key": key}}
    assert gate["env"] == [POD_IP, {"name": "ENDPOINTS", "valueFrom": ref}]
    assert "volumes" not in pod["spec"]


def test_by_name_elastic_pods_have_no_config_map_to_wait_for() -> None:
    pod = render(make_job(intranet="Service", elastic=1, worker=make_role(2)), options=GATE)
    (gate,) = pod["spec"]["initContainers"]
    assert (gate["command"][3:], gate["env"]) == (["--fallback", "30s"], [POD_IP])


def test_the_gate_has_the_resources_of_the_container_that_trains() -> None:
    """Any quota and any limit range then admits both or neither, and the pod keeps its QoS class."""
    given = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"}
    gpu, network = {"nvidia.com/gpu": "1"}, {"rdma/hca": "1"}
    trainer = {"name": "main", "resources": {"requests": given | network, "limits": given | gpu | network}}
    sidecar = {"name": "mesh", "resources": {"requests": {"cpu": "10m"}}}
    pod = render(make_job(worker=make_role(2, containers=[trainer, sidecar])), options=GATE)
    (gate,) = pod["spec"]["initContainers"]
    assert gate["resources"] == {"requests": given, "limits": given}


@pytest.mark.parametrize(
    ("user", "is_said"), [({}, True), ({"runAsUser": 1000}, True), ({"runAsUser": 0}, False)]
)
def test_the_gate_runs_as_the_user_of_the_pod(user: dict[str, Any], is_said: bool) -> None:
    """With `runAsNonRoot`, the kubelet does not start a container of root."""
    pod = render(make_job(worker=make_role(2, securityContext=user)), options=GATE)
    (gate,) = pod["spec"]["initContainers"]
    assert gate["securityContext"].get("runAsNonRoot", False) is is_said
    assert "runAsUser" not in gate["securityContext"], "some namespaces give each pod a user of their range"


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


def test_a_set_name_that_is_not_a_volume_name_gets_another_volume() -> None:
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
    assert job.problems == ()
    rendered = [render(job, p.role, p.ordinal, options=GATE) for p in job.pod_ids]
    assert len({p["metadata"]["name"] for p in rendered}) == len(job.pod_ids)


def test_the_collective_example_keeps_its_scheduler_and_its_resources() -> None:
    spec = render(job_of(collective_example()), index=3)["spec"]
    assert spec["schedulerName"] == "volcano"
    assert spec["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert spec["restartPolicy"] == "OnFailure"
