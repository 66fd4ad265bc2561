"""The typed views: published manifests parse, odd values never crash, impossible ones name the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from paddlewheel.contracts.announcements import Announcement, parse_announcements, render_announcements
from paddlewheel.contracts.conditions import Condition, parse_conditions, render_conditions
from paddlewheel.contracts.crds import (
    parse_paddle_job_spec,
    parse_paddle_job_status,
    parse_sample_job_spec,
    parse_sample_job_status,
    parse_sample_set_spec,
    parse_sample_set_status,
)
from paddlewheel.contracts.crds.paddlejob import Mode, Network
from paddlewheel.core.errors import Permanent

MANIFESTS = Path(__file__).parents[2] / "integration" / "crds" / "manifests" / "contract.yaml"
PUBLISHED = {
    document["metadata"]["name"]: document
    for document in yaml.load_all(MANIFESTS.read_text(encoding="utf-8"), yaml.CSafeLoader)
}


def test_parameter_server_job() -> None:
    spec = parse_paddle_job_spec(PUBLISHED["ctr"])
    assert spec.with_gloo == 1
    assert list(spec.roles) == ["ps", "worker"]
    assert [role.replicas for role in spec.roles.values()] == [2, 2]
    assert (spec.intranet, spec.clean_pod_policy, spec.elastic, spec.sample_set_ref) == ("", "", None, None)


def test_collective_job_with_gang_and_data() -> None:
    spec = parse_paddle_job_spec(PUBLISHED["resnet"])
    assert spec.scheduling_policy is not None
    assert spec.scheduling_policy.min_resources == {"cpu": 8, "nvidia.com/gpu": "4"}
    assert spec.scheduling_policy.priority_class == "high"
    assert spec.sample_set_ref is not None
    assert (spec.sample_set_ref.name, spec.sample_set_ref.mount_path) == ("imagenet", "/data")
    assert spec.worker is not None
    assert (spec.worker.requests, spec.worker.limits) == (2, 8)
    assert spec.worker.template == PUBLISHED["resnet"]["spec"]["worker"]["template"]


def test_old_habits_parse_as_they_stand() -> None:
    spec = parse_paddle_job_spec(PUBLISHED["legacy"])
    assert (spec.clean_pod_policy, spec.intranet, spec.elastic) == ("OnFailed", "Host", 1)


def test_sample_set_with_everything() -> None:
    spec = parse_sample_set_spec(PUBLISHED["criteo"])
    assert (spec.partitions, spec.no_sync, spec.source) == (3, True, None)
    assert spec.csi is not None
    options = spec.csi.juicefs_mount_options
    assert options is not None
    assert (options.attr_cache, options.writeback, options.free_space_ratio) == (7200, True, "0.2")
    assert spec.cache is not None
    assert [(level.medium_type, level.cache_size) for level in spec.cache.levels] == [
        ("MEM", 4096),
        ("SSD", 102400),
    ]
    assert spec.tolerations == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_least_sample_set() -> None:
    spec = parse_sample_set_spec(PUBLISHED["imagenet"])
    assert spec.source is not None
    assert spec.source.uri == "s3://bucket.s3.example.com/imagenet"
    assert spec.secret_ref is not None
    assert (spec.secret_ref.name, spec.secret_ref.namespace) == ("imagenet", "")
    assert spec.warmup is None


def test_operations() -> None:
    sync = parse_sample_job_spec(PUBLISHED["imagenet-sync"]).sync_options
    assert sync is not None
    assert (sync.threads, sync.delete_dst, sync.bwlimit, sync.destination) == (32, True, 400, "train")
    warmup = parse_sample_job_spec(PUBLISHED["imagenet-warmup"]).warmup_options
    assert warmup is not None
    assert (warmup.paths, warmup.strategy_name, warmup.threads) == (("train",), "random", 64)
    rmr = parse_sample_job_spec(PUBLISHED["imagenet-rmr"])
    assert rmr.terminate
    assert rmr.rmr_options is not None
    assert rmr.rmr_options.paths == ("old", "/tmp-files")


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {}}, {"status": None}])
def test_what_is_absent_counts_as_empty(obj: dict[str, Any]) -> None:
    assert parse_paddle_job_spec(obj).roles == {}
    assert parse_sample_set_spec(obj).secret_ref is None
    assert parse_sample_job_spec(obj).type == ""
    assert parse_paddle_job_status(obj).phase == ""
    assert parse_sample_set_status(obj).conditions == ()
    assert parse_sample_job_status(obj).progress is None


def test_nulls_count_as_absent_and_the_object_stays_as_it_was() -> None:
    obj = {"spec": {"worker": {"replicas": None, "template": {"spec": {"x": None}}}, "ps": None}}
    spec = parse_paddle_job_spec(obj)
    assert spec.worker is not None
    assert (spec.worker.replicas, spec.ps) == (0, None)
    assert obj == {"spec": {"worker": {"replicas": None, "template": {"spec": {"x": None}}}, "ps": None}}


@pytest.mark.parametrize("replicas", [1, None])
def test_raw_parts_are_shared_with_the_object(replicas: int | None) -> None:
    template = {"spec": {"containers": [{"name": "paddle", "command": None}]}}
    spec = parse_paddle_job_spec({"spec": {"worker": {"replicas": replicas, "template": template}}})
    assert spec.worker is not None
    assert spec.worker.template is template
    refs = [{"kind": "Pod", "name": "a-worker-0"}]
    status = parse_paddle_job_status({"status": {"worker": {"running": replicas, "refs": refs}}})
    assert status.roles["worker"].refs is refs


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingPolicy": {"minResources": {"cpu": None, "memory": "1Gi"}, "queue": None}},
        {"schedulingPolicy": {"minResources": {"memory": "1Gi"}}, "intranet": None},
    ],
)
def test_nulls_of_typed_parts_are_left_out(spec: dict[str, Any]) -> None:
    policy = parse_paddle_job_spec({"spec": spec}).scheduling_policy
    assert policy is not None
    assert (policy.min_resources, policy.queue) == ({"memory": "1Gi"}, "")


def test_nulls_in_lists_are_left_out() -> None:
    options = parse_sample_job_spec({"spec": {"rmrOptions": {"paths": [None, "a", None, "b"]}}}).rmr_options
    assert options is not None
    assert options.paths == ("a", "b")


def test_conditions_and_announcements_are_the_values_controllers_use() -> None:
    at = "2024-01-01T00:00:00Z"
    conditions = (
        Condition("Ready", "True", "AllReady", "", at, 2),
        Condition("Failed", "False", "NoFailure"),
    )
    announcements = (Announcement("JobRunning", 0, at, True), Announcement("JobRestarting", 1, at))
    raw = {
        "conditions": render_conditions(conditions),
        "announcements": render_announcements(announcements),
    }
    status = parse_paddle_job_status({"status": raw})
    assert (status.conditions, status.announcements) == (conditions, announcements)
    assert (parse_conditions(raw["conditions"]), parse_announcements(raw["announcements"])) == (
        conditions,
        announcements,
    )


@pytest.mark.parametrize(
    ("spec", "network", "mode"),
    [
        ({"worker": {"replicas": 1}}, Network.POD_IP, Mode.SINGLE),
        ({"worker": {"replicas": 2}, "intranet": "Service"}, Network.SERVICE, Mode.COLLECTIVE),
        ({"worker": {"replicas": 2}, "ps": {"replicas": 0}, "intranet": "Host"}, Network.HOST, Mode.PS),
        ({"heter": {"replicas": 2}, "intranet": "host"}, Network.POD_IP, Mode.SINGLE),
    ],
)
def test_network_and_mode(spec: dict[str, Any], network: Network, mode: Mode) -> None:
    parsed = parse_paddle_job_spec({"spec": spec})
    assert (parsed.network, parsed.mode) == (network, mode)


def test_replicas_of_a_role() -> None:
    parsed = parse_paddle_job_spec({"spec": {"worker": {"replicas": 2}}})
    assert (parsed.replicas_of("worker"), parsed.replicas_of("ps")) == (2, None)


def test_stored_before_the_rules_existed() -> None:
    old = {"spec": {"worker": {"replicas": -3}, "sampleSetRef": {"mountPath": "/a:/b"}, "unknown": 1}}
    spec = parse_paddle_job_spec(old)
    assert spec.worker is not None
    assert spec.worker.replicas == -3
    assert parse_sample_set_spec({"spec": {"partitions": 0, "source": {"uri": "x"}}}).partitions == 0


def test_bandwidth_below_zero_is_no_limit() -> None:
    options = parse_sample_job_spec({"spec": {"syncOptions": {"bwlimit": -5}}}).sync_options
    assert options is not None
    assert options.bwlimit == 0


def test_impossible_value_is_permanent_and_names_the_field() -> None:
    with pytest.raises(Permanent) as caught:
        parse_paddle_job_spec({"spec": {"worker": {"replicas": "many"}}})
    assert caught.value.reason == "InvalidSpec"
    assert "spec.worker.replicas" in caught.value.message
    with pytest.raises(Permanent, match=r"status\.progress\.filesDone"):
        parse_sample_job_status({"status": {"progress": {"filesDone": "x"}}})


def test_status_survives_a_round_trip() -> None:
    at = "2024-01-01T00:00:00Z"
    status = {
        "phase": "Running",
        "mode": "Collective",
        "worker": {"running": 2, "refs": [{"kind": "Pod", "name": "a-worker-0"}]},
        "startTime": at,
        "results": {"accuracy": 0.97},
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}],
        "announcements": [{"fact": "JobRunning", "at": at, "announced": True}],
    }
    parsed = parse_paddle_job_status({"status": status})
    assert parsed.model_dump(by_alias=True, exclude_defaults=True, mode="json") == status


def test_views_are_immutable() -> None:
    spec = parse_sample_job_spec(PUBLISHED["imagenet-rmr"])
    with pytest.raises(ValidationError):
        spec.terminate = False  # type: ignore[misc]
