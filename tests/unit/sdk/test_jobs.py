"""The manifest of a TrainingJob: what is in it, and what is refused with the parameter and a remedy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paddlewheel.contracts.crds import PADDLE_JOB, Mode, parse_paddle_job_spec
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.violations import find_violations
from paddlewheel.sdk import InvalidArgument, TrainingJob


def make(**fields: Any) -> dict[str, Any]:
    return TrainingJob(**{"name": "sine", "image": "team/sine:1", **fields}).manifest()


def container(manifest: dict[str, Any], role: str = "worker") -> dict[str, Any]:
    (found,) = manifest["spec"][role]["template"]["spec"]["containers"]
    return dict(found)


def test_the_least_job_has_nothing_that_was_not_asked_for() -> None:
    assert make() == {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "sine", "namespace": "default"},
        "spec": {
            "worker": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "main", "image": "team/sine:1"}]}},
            }
        },
    }


def test_everything_that_is_asked_for_is_in_the_manifest() -> None:
    made = make(
        namespace="team-a", command=["python", "train.py"], workers=4, servers=2, gpus=8, cpu="500m",
        memory="8Gi", env={"EPOCHS": "3", "EMPTY": ""}, data="imagenet:/data", network="service",
        checkpoint="s3://bucket/resnet", backoff_limit=0, ttl=0, deadline="1d12h",
    )  # fmt: skip
    env = [{"name": "EPOCHS", "value": "3"}, {"name": "EMPTY", "value": ""}]
    every = {"name": "main", "image": "team/sine:1", "command": ["python", "train.py"], "env": env}
    requests = {"cpu": "500m", "memory": "8Gi"}
    assert made["metadata"] == {"name": "sine", "namespace": "team-a"}
    assert container(made) == {
        **every,
        "resources": {"requests": requests, "limits": {"memory": "8Gi", "nvidia.com/gpu": 8}},
    }
    assert container(made, "ps") == {
        **every,
        "resources": {"requests": requests, "limits": {"memory": "8Gi"}},
    }
    spec = made["spec"]
    assert (spec.pop("worker")["replicas"], spec.pop("ps")["replicas"]) == (4, 2)
    assert spec == {
        "intranet": "Service",
        "sampleSetRef": {"name": "imagenet", "mountPath": "/data"},
        "checkpointPath": "s3://bucket/resnet",
        "backoffLimit": 0,
        "activeDeadlineSeconds": 129600,
        "ttlSecondsAfterFinished": 0,
    }


@pytest.mark.parametrize(
    ("fields", "mode"),
    [({}, Mode.SINGLE), ({"workers": 2}, Mode.COLLECTIVE), ({"servers": 1}, Mode.PS)],
)
def test_the_numbers_make_the_mode(fields: dict[str, Any], mode: Mode) -> None:
    made = make(**fields)
    assert parse_paddle_job_spec(made).mode is mode
    assert find_violations(PADDLE_JOB, parse_subject(PADDLE_JOB, made)) == ()


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({"workers": 2}, "gloo"),
        ({"workers": 2, "env": {"PADDLE_DISTRI_BACKEND": "bkcl"}}, "bkcl"),
        ({"workers": 2, "gpus": 1}, None),
        ({"workers": 2, "servers": 1}, None),
        ({"workers": 1}, None),
    ],
)
def test_workers_without_gpus_communicate_by_gloo(fields: dict[str, Any], backend: str | None) -> None:
    env = {entry["name"]: entry["value"] for entry in container(make(**fields)).get("env", ())}
    assert env.get("PADDLE_DISTRI_BACKEND") == backend


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90", 90), ("30m", 1800), ("1d12h", 129600), (timedelta(minutes=2), 120), (7, 7)],
)
def test_times_are_seconds_or_durations(given: Any, seconds: int) -> None:
    spec = make(deadline=given, ttl=given)["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (seconds, seconds)


@pytest.mark.parametrize(
    ("fields", "parameter", "said"),
    [
        ({"name": ""}, "name", "'' is not a valid name of an object"),
        ({"name": "Sine"}, "name", "as in resnet-50"),
        ({"name": "a..b"}, "name", "is not a valid name of an object"),
        ({"name": "sine\n"}, "name", "is not a valid name of an object"),
        ({"name": "s" * 60}, "name", "shorten it"),
        ({"name": "a.b", "network": "Service"}, "name", "use '-' instead"),
        ({"namespace": "team.a"}, "namespace", "as in team-a"),
        ({"image": ""}, "image", "pass one such as"),
        ({"image": "a b"}, "image", "is not a valid image"),
        ({"workers": 0}, "workers", "pass at least 1"),
        ({"workers": 10_001}, "workers", "replicas is too large"),
        ({"servers": -1}, "servers", "pass at least 0"),
        ({"gpus": -1}, "gpus", "pass at least 0"),
        ({"cpu": "four"}, "cpu", "pass one such as 4 or 500m"),
        ({"memory": "8 GB"}, "memory", "pass one such as 8Gi"),
        ({"memory": "-8Gi"}, "memory", "is not a quantity"),
        ({"env": {"A=B": "1"}}, "env", "'A=B' is not a valid name of a variable"),
        ({"env": {"1A": "1"}}, "env", "not first a digit"),
        ({"data": "imagenet"}, "data", "pass SET:/PATH"),
        ({"data": ":/data"}, "data", "pass SET:/PATH"),
        ({"data": "imagenet:data"}, "data", "pass SET:/PATH"),
        ({"data": "Imagenet:/data"}, "data", "is not a valid name of an object"),
        ({"data": "imagenet:/"}, "data", "must not be the container's root"),
        ({"data": "imagenet:/a:b"}, "data", "must not contain ':'"),
        ({"checkpoint": "s3://key:secret@bucket/x"}, "checkpoint", "variables from a Secret"),
        ({"backoff_limit": -1}, "backoff_limit", "must be at least 0"),
        ({"deadline": "soon"}, "deadline", "'soon' is not a duration"),
        ({"deadline": 0}, "deadline", "must be at least 1, is 0"),
        ({"deadline": "99999999d"}, "deadline", "is too long"),
        ({"deadline": "999999999d999999999h"}, "deadline", "is too long"),
        ({"ttl": "-1"}, "ttl", "is not a duration"),
        ({"name": 7}, "name", "7 is not a string"),
        ({"image": None}, "image", "None is not a string"),
        ({"network": 1}, "network", "1 is not a string"),
        ({"command": "python train.py"}, "command", 'as in ["python", "train.py"]'),
        ({"command": ["train.py", 3]}, "command", 'as in ["python", "train.py"]'),
        ({"env": {"A": 3}}, "env", 'as in {"EPOCHS": "3"}'),
        ({"env": ["A=3"]}, "env", 'as in {"EPOCHS": "3"}'),
        ({"workers": "2"}, "workers", "'2' is not a whole number"),
        ({"servers": 1.0}, "servers", "1.0 is not a whole number"),
        ({"gpus": True}, "gpus", "True is not a whole number"),
        ({"backoff_limit": "3"}, "backoff_limit", "'3' is not a whole number"),
        ({"cpu": 4}, "cpu", 'pass a string, as in "4"'),
        ({"memory": 8}, "memory", "8 is not a string"),
        ({"deadline": 1.5}, "deadline", "1.5 is not a duration"),
        ({"ttl": True}, "ttl", "True is not a duration"),
        ({"network": "Calico"}, "network", "pass one of PodIP, Service, Host"),
    ],
)
def test_what_cannot_be_is_refused_with_the_parameter_and_a_remedy(
    fields: dict[str, Any], parameter: str, said: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make(**fields)
    assert (refused.value.parameter, said in str(refused.value)) == (parameter, True), refused.value
