"""The environment of pods: every row of contract.md A.4 and A.5, and the defects of G."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.job_controller.builders import GATE, job_of, make_job, make_seen, render

from job_controller.core.environment import config_data, endpoint, pod_ports
from job_controller.core.model import Options
from job_controller.core.pods import PodId
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.paddlejobs import (
    make_role,
    old_habits_example,
    parameter_server_example,
)


def env_of(pod: Object) -> dict[str, Any]:
    return {
        v["name"]: v.get("value", v.get("valueFrom")) for v in pod["spec"]["containers"][0].get("env", ())
    }


POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize(
    ("role", "paddle_role"), [("ps", "PSERVER"), ("worker", "TRAINER"), ("heter", "HETER_TRAINER")]
)
def test_direct_environment_of_every_role(role: str, paddle_role: str) -> None:
    roles: dict[str, Any] = {"ps": make_role(2), role: make_role(2)}
    job = make_job(**roles)
    assert env_of(render(job, role, 1)) == {
        "POD_IP": POD_IP,
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": paddle_role,
        "PADDLE_TRAINING_ROLE": paddle_role,
        "PADDLEWHEEL_EPOCH": "0",
    }


@pytest.mark.parametrize(
    ("intranet", "port", "pod_ip"),
    [
        ("PodIP", 36000, POD_IP),
        ("odd", 36000, POD_IP),
        ("Service", 36000, "demo-worker-0"),
    ],
)
def test_own_address_by_network(intranet: str, port: int, pod_ip: object) -> None:
    env = env_of(render(make_job(intranet=intranet, worker=make_role(2)), port=port))
    assert env["POD_IP"] == pod_ip
    assert env["PADDLE_CURRENT_ENDPOINT"] == f"$(POD_IP):{port}"
    assert list(env).index("POD_IP") < list(env).index("PADDLE_CURRENT_ENDPOINT")


def test_config_of_a_ps_job_with_gloo_agrees_with_itself() -> None:
    job = job_of(parameter_server_example())
    seen = make_seen(job, {"ps": ["10.1.0.4", "10.1.0.5"], "worker": ["10.1.0.6", "10.1.0.7"]})
    assert config_data(seen, 36000) == {
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
        data = config_data(make_seen(job, {"ps": ["10.0.0.1", "10.0.0.2"], "worker": ["10.0.0.3"]}), port)
        assert data is not None
        given = env_of(render(job, "ps", 1, port=port))["POD_IP"]
        own = given if isinstance(given, str) else "10.0.0.2"
        assert data["PADDLE_PSERVERS_IP_PORT_LIST"].split(",").index(f"{own}:{data['PADDLE_PORT']}") == 1


def test_service_names_are_known_before_any_pod_exists() -> None:
    job = make_job(intranet="Service", withGloo=2, ps=make_role(1), worker=make_role(2))
    data = config_data(make_seen(job), 36000)
    assert data is not None
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "demo-worker-0:36000,demo-worker-1:36000"
    assert data["PADDLE_TRAINERS"] == "demo-worker-0,demo-worker-1"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "demo-ps-0:36018"
    assert data["PADDLE_WITH_GLOO"] == "2"


@pytest.mark.parametrize(("intranet", "ips"), [("PodIP", ["10.0.0.1", ""]), ("Host", ["10.0.0.1"])])
def test_no_config_before_all_addresses_are_known(intranet: str, ips: list[str]) -> None:
    job = make_job(intranet=intranet, worker=make_role(2))
    assert config_data(make_seen(job, {"worker": ips}), 36000) is None


def test_heter_peers_have_the_names_paddle_reads() -> None:
    job = make_job(worker=make_role(1), heter=make_role(1))
    data = config_data(make_seen(job, {"worker": ["10.1.0.6"], "heter": ["10.1.0.8"]}), 36000) or {}
    for name in (
        "PADDLE_HETER_ENDPOINTS",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    ):
        assert data[name] == "10.1.0.8:36000"


def config_ref(key: str) -> dict[str, Any]:
    return {"configMapKeyRef": {"name": "demo", "key": key}}


def test_a_heter_job_is_a_pipeline_of_two_stages_that_know_each_other() -> None:
    """Paddle's role makers refuse a trainer that knows of heter workers but not which of them come next."""
    job = make_job(ps=make_role(1), worker=make_role(2), heter=make_role(1))
    assert env_of(render(job, "worker")).items() >= {
        ("STAGE_ID", "1"),
        ("HETER_DEVICE_TYPE", "cpu"),
    }
    next_ones = env_of(render(job, "worker"))["PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"]
    former_ones = env_of(render(job, "heter"))["PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"]
    assert next_ones == config_ref("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST")
    assert former_ones == config_ref("PADDLE_TRAINER_ENDPOINTS")
    assert env_of(render(job, "heter"))["STAGE_ID"] == "2"
    addresses = {"ps": ["10.1.0.4"], "worker": ["10.1.0.6", "10.1.0.7"], "heter": ["10.1.0.8"]}
    data = config_data(make_seen(job, addresses), 36000) or {}
    assert (data["STAGE_NUM"], data["PADDLE_STAGE_TRAINERS_NUM"]) == ("2", "[2, 1]")


def test_heter_workers_with_a_gpu_use_it() -> None:
    role = make_role(1)
    role["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    job = make_job(ps=make_role(1), worker=make_role(1), heter=role)
    assert env_of(render(job, "heter"))["HETER_DEVICE_TYPE"] == "gpu"


def test_the_users_own_stages_stay() -> None:
    role = make_role(1)
    role["template"]["spec"]["containers"][0]["env"] = [{"name": "STAGE_ID", "value": "3"}]
    job = make_job(ps=make_role(1), worker=make_role(1), heter=role)
    assert env_of(render(job, "heter"))["STAGE_ID"] == "3"


@pytest.mark.parametrize("fields", [{"ps": 1, "worker": 1}, {"worker": 1, "heter": 1}])
def test_other_jobs_have_no_stages(fields: Mapping[str, int]) -> None:
    roles: dict[str, Any] = {role: make_role(count) for role, count in fields.items()}
    job = make_job(**roles)
    assert "STAGE_ID" not in env_of(render(job, "worker"))
    data = config_data(make_seen(job, {role: ["10.1.0.6"] for role in fields}), 36000) or {}
    assert "STAGE_NUM" not in data


def test_ipv6_addresses_have_brackets_in_endpoints_only() -> None:
    assert endpoint("fd00::1", 36000) == "[fd00::1]:36000"
    job = make_job(withGloo=1, ps=make_role(1), worker=make_role(1))
    data = config_data(make_seen(job, {"ps": ["fd00::1"], "worker": ["fd00::2"]}), 36000) or {}
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
def test_no_gloo_without_servers_or_when_off(spec: dict[str, Any]) -> None:
    job = make_job(intranet="Service", **spec)
    assert not [k for k in config_data(make_seen(job), 36000) or {} if "GLOO" in k]


def test_host_network_uses_the_jobs_block_everywhere() -> None:
    job = make_job(intranet="Host", withGloo=1, ps=make_role(1), worker=make_role(1))
    data = config_data(make_seen(job, {"ps": ["192.0.2.1"], "worker": ["192.0.2.2"]}), 40020) or {}
    assert data["PADDLE_PORT"] == "40020"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.2:40020"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "192.0.2.1:40038"
    spec = render(job, port=40020, options=GATE)["spec"]
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "ports" not in spec["containers"][0]
    assert "hostname" not in spec


def own_port(config: Mapping[str, str], pod: Object) -> str:
    """The value that the kubelet gives the pod's PADDLE_PORT."""
    ref = env_of(pod)["PADDLE_PORT"]["configMapKeyRef"]
    assert ref["name"] == "demo"
    return config[ref["key"]]


def test_pods_of_a_job_on_one_node_have_different_ports_and_all_others_know_them() -> None:
    job = make_job(intranet="Host", withGloo=1, ps=make_role(2), worker=make_role(3))
    seen = make_seen(
        job, {"ps": ["192.0.2.1", "192.0.2.1"], "worker": ["192.0.2.1", "192.0.2.2", "192.0.2.2"]}
    )
    data = config_data(seen, 40020) or {}
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == "192.0.2.1:40020,192.0.2.1:40021"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.1:40022,192.0.2.2:40020,192.0.2.2:40021"
    assert data["PADDLE_TRAINERS"] == "192.0.2.1,192.0.2.2,192.0.2.2"
    assert (data["PADDLE_PORT"], data["PADDLE_GLOO_HTTP_ENDPOINT"]) == ("40020", "192.0.2.1:40038")
    for role, variable in (("ps", "PADDLE_PSERVERS_IP_PORT_LIST"), ("worker", "PADDLE_TRAINER_ENDPOINTS")):
        told = [entry.rpartition(":")[2] for entry in data[variable].split(",")]
        assert [own_port(data, render(job, role, i, port=40020)) for i in range(len(told))] == told


def test_a_trainer_on_the_hosts_network_finds_itself_in_the_list() -> None:
    env = env_of(render(make_job(intranet="Host", worker=make_role(2)), index=1, port=40020))
    assert env["PADDLE_CURRENT_ENDPOINT"] == "$(POD_IP):$(PADDLE_PORT)"
    # A variable is expanded only after the variables that it names.
    assert list(env).index("PADDLE_PORT") < list(env).index("PADDLE_CURRENT_ENDPOINT")


def test_a_pod_keeps_its_port_when_another_of_its_node_is_replaced() -> None:
    job = make_job(intranet="Host", worker=make_role(3))
    before = make_seen(job, {"worker": ["192.0.2.1", "192.0.2.1", "192.0.2.2"]})
    config = config_data(before, 40020)
    moved = replace(make_seen(job, {"worker": ["192.0.2.2", "192.0.2.1", "192.0.2.2"]}), config=config)
    first, *others = moved.pods
    seen = replace(moved, pods=(first, *(replace(pod, began=True) for pod in others)))
    data = config_data(seen, 40020) or {}
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.2:40021,192.0.2.1:40021,192.0.2.2:40020"


def test_the_port_of_a_pod_that_is_gone_stays_known() -> None:
    job = make_job(intranet="Host", worker=make_role(2))
    config = config_data(make_seen(job, {"worker": ["192.0.2.1", "192.0.2.1"]}), 40020)
    alone = replace(make_seen(job, {"worker": ["192.0.2.1"]}), config=config)
    assert pod_ports(alone, 40020) == {PodId("worker", 0): 40020, PodId("worker", 1): 40021}


def test_ports_of_another_block_are_not_kept() -> None:
    job = make_job(intranet="Host", worker=make_role(2))
    seen = make_seen(job, {"worker": ["192.0.2.1", "192.0.2.1"]})
    config = {"PADDLE_PORT_WORKER_0": "50020", "PADDLE_PORT_WORKER_1": "x"}
    data = config_data(replace(seen, config=config), 40020) or {}
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.1:40020,192.0.2.1:40021"


def test_a_port_of_the_users_own_stays() -> None:
    role = make_role(2)
    role["template"]["spec"]["containers"][0]["env"] = [{"name": "PADDLE_PORT", "value": "1"}]
    env = env_of(render(make_job(intranet="Host", worker=role), port=40020))
    assert (env["PADDLE_PORT"], env["PADDLE_CURRENT_ENDPOINT"]) == ("1", "$(POD_IP):40020")


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
    assert config_data(make_seen(job, {"worker": ["a", "b", "c"]}), 40020) is None
    assert "PADDLE_ELASTIC_SERVER" not in env_of(render(job, port=40020))


def test_elastic_without_workers_does_not_crash() -> None:
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
        "PADDLEWHEEL_EPOCH",
    ]
    assert container["env"][0]["value"] == "1"
    assert container["env"][3]["value"] == "0"
    # The later one of two sources with one key wins.
    assert container["envFrom"] == [{"secretRef": {"name": "own"}}, {"configMapRef": {"name": "demo"}}]
