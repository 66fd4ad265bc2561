"""The pods of a revision: what the contract asks for, and the original's defects, which are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.serving_controller.conftest import ServingHarness, running_on

from paddlewheel.kube.ports import DEPLOYMENTS, KNATIVE_SERVICES, SERVICES, Object
from paddlewheel.testkit.paddleservices import make_endpoint, make_service
from serving_controller.domain.model import Options, parse_service
from serving_controller.domain.quantity import completed
from serving_controller.domain.revision import DEFAULT_RESOURCES, Revision, revision_of
from serving_controller.domain.template import container


async def template_of(harness: ServingHarness, **spec: Any) -> Object:
    """The one pod template that the service has."""
    await harness.apply(**spec)
    resource = KNATIVE_SERVICES if harness.serving.mode == "Knative" else DEPLOYMENTS
    [found] = await harness.objects(resource)
    template: Object = found["spec"]["template"]
    return template


async def container_of(harness: ServingHarness, **spec: Any) -> Object:
    template = await template_of(harness, **spec)
    container: Object = template["spec"]["containers"][0]
    return container


def revision(**spec: Any) -> Revision:
    raw = make_service(**spec)
    raw["metadata"] |= {"uid": "u"}
    service = parse_service(raw)
    assert service.spec.default is not None
    made = revision_of(service, service.spec.default, {}, Options())
    assert made is not None
    return made


# The contract


def test_images_of_a_cluster_without_a_registry_are_not_pulled_again() -> None:
    made = container(revision(), Options(pull_policy="IfNotPresent"))
    assert made["imagePullPolicy"] == "IfNotPresent"


async def test_image_port_and_argument(harness: ServingHarness) -> None:
    container = await container_of(harness, default=make_endpoint("1", arg="python3 serve.py --x='a b'"))
    assert container["image"] == "example/lac:1"
    assert container["imagePullPolicy"] == "Always"
    assert container["ports"] == [{"name": "http1", "containerPort": 9292, "protocol": "TCP"}]
    assert container["command"] == ["/bin/bash", "-c"]
    assert container["args"] == ["python3 serve.py --x='a b'"]


async def test_labels_of_the_service_and_the_originals_own_are_on_the_pods(harness: ServingHarness) -> None:
    service = make_service()
    service["metadata"]["labels"] = {"team": "a"}
    await harness.create(service)
    await harness.drain_queue()
    resource = KNATIVE_SERVICES if harness.serving.mode == "Knative" else DEPLOYMENTS
    [found] = await harness.objects(resource)
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert labels["PaddleService"] == "lac"
    assert labels["team"] == "a"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("v2", "v2"),
        ("paddle_serving:0.7", "paddle-serving-0-7"),
        ("PaddleServing", "paddleserving"),
        ("_", "paddleserving"),
    ],
)
def test_the_container_is_named_by_runtime_version(asked: str, name: str) -> None:
    assert container(revision(runtimeVersion=asked), Options())["name"] == name


async def test_our_own_runtime_runs_where_only_restricted_pods_may(harness: ServingHarness) -> None:
    template = await template_of(harness, default={"model": {"uri": "s3://models/lac/1"}})
    own = template["spec"]["containers"][0]["securityContext"]
    assert own["runAsNonRoot"]
    assert not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["spec"]["automountServiceAccountToken"] is False


async def test_an_image_of_the_users_own_runs_as_it_did(harness: ServingHarness) -> None:
    template = await template_of(harness)
    assert "securityContext" not in template["spec"]["containers"][0]
    assert "automountServiceAccountToken" not in template["spec"]


async def test_knative_gets_the_originals_annotations(knative: ServingHarness) -> None:
    scaling = {"autoscaler": "kpa", "metric": "rps", "target": 50, "window": 30, "panicWindow": 20}
    template = await template_of(knative, service=scaling | {"minScale": 1, "maxScale": 5})
    found = template["metadata"]["annotations"]
    own = {k.partition("/")[2]: v for k, v in found.items() if k.startswith("autoscaling.knative.dev/")}
    assert own == {
        "class": "kpa.autoscaling.knative.dev",
        "metric": "rps",
        "target": "50",
        "targetUtilizationPercentage": "70",
        "window": "30s",
        "panicWindowPercentage": "20",
        "panicThresholdPercentage": "200",
        "minScale": "1",
        "maxScale": "5",
    }
    assert template["spec"]["timeoutSeconds"] == 300


async def test_knatives_own_autoscaler_is_not_asked_for_cpu(knative: ServingHarness) -> None:
    template = await template_of(knative, service={"metric": "cpu"})
    found = template["metadata"]["annotations"]
    assert found["autoscaling.knative.dev/class"] == "hpa.autoscaling.knative.dev"


# The original's defects


async def test_an_empty_argument_leaves_the_images_entry_point(harness: ServingHarness) -> None:
    container = await container_of(harness, default=make_endpoint("1", arg=""))
    assert "command" not in container
    assert "args" not in container


async def test_a_target_is_no_limit_of_concurrency(knative: ServingHarness) -> None:
    template = await template_of(knative, service={"metric": "rps", "target": 50})
    assert template["spec"]["containerConcurrency"] == 0


async def test_a_limit_of_concurrency_is_asked_for_by_its_own_name(knative: ServingHarness) -> None:
    template = await template_of(knative, service={"concurrencyLimit": 4})
    assert template["spec"]["containerConcurrency"] == 4


async def test_no_probe_waits_for_a_fixed_time(plain: ServingHarness) -> None:
    container = await container_of(plain)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert "initialDelaySeconds" not in container[probe]
        assert container[probe]["tcpSocket"] == {"port": 9292}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] == 600


async def test_knative_looks_at_readiness_itself_as_often_as_it_likes(knative: ServingHarness) -> None:
    """With a startup probe, requests that wake a service would wait for the kubelet's look."""
    container = await container_of(knative)
    assert "startupProbe" not in container
    assert container["readinessProbe"] == {"tcpSocket": {}}
    assert container["livenessProbe"]["tcpSocket"] == {}
    assert container["livenessProbe"]["initialDelaySeconds"] == 600


async def test_the_working_directory_is_used(harness: ServingHarness) -> None:
    assert (await container_of(harness, workingDir="/srv"))["workingDir"] == "/srv"


async def test_volumes_are_mounted(harness: ServingHarness) -> None:
    volume = {"name": "v", "emptyDir": {}}
    mount = {"name": "v", "mountPath": "/v"}
    template = await template_of(harness, volumes=[volume], volumeMounts=[mount])
    assert template["spec"]["volumes"] == [volume]
    assert template["spec"]["containers"][0]["volumeMounts"] == [mount]


async def test_requests_above_the_default_limits_raise_the_limits(harness: ServingHarness) -> None:
    container = await container_of(harness, resources={"requests": {"cpu": "1", "memory": "100Mi"}})
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "100Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    }


async def test_the_template_of_a_canary_is_written_only_once_the_default_exists(
    knative: ServingHarness,
) -> None:
    await knative.apply(canary=make_endpoint("2"), canaryTrafficPercent=20)
    [service] = await knative.objects(KNATIVE_SERVICES)
    assert service["spec"]["template"]["spec"]["containers"][0]["image"] == "example/lac:1"
    assert [target["percent"] for target in service["spec"]["traffic"]] == [100]
    stable = await knative.stable()
    await knative.pending()
    await knative.drain_queue()
    await knative.ready(stable)
    [service] = await knative.objects(KNATIVE_SERVICES)
    assert service["spec"]["template"]["spec"]["containers"][0]["image"] == "example/lac:2"


async def test_a_pod_is_drained_and_gets_time_to_end(plain: ServingHarness) -> None:
    template = await template_of(plain)
    linger = template["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < linger < template["spec"]["terminationGracePeriodSeconds"]
    [deployment] = await plain.objects(DEPLOYMENTS)
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


async def test_a_service_that_belongs_to_somebody_else_is_left_alone(plain: ServingHarness) -> None:
    foreign = {"metadata": {"name": "lac-default-private", "namespace": "default"}, "spec": {"ports": []}}
    await plain.create(foreign, SERVICES)
    await plain.apply()
    assert await plain.reason("Blocked") == ("True", "OwnedByAnother")
    [kept] = [s for s in await plain.objects(SERVICES) if s["metadata"]["name"] == "lac-default-private"]
    assert kept["spec"] == {"ports": []}


# Models


async def test_a_model_is_served_by_the_runtime_with_its_probes(harness: ServingHarness) -> None:
    model = {"name": "digits", "version": 3, "uri": "s3://models/digits/3", "secretRef": {"name": "keys"}}
    container = await container_of(harness, default={"model": model})
    assert container["image"] == "paddlewheel/paddle-runtime:dev"
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["PADDLE_RUNTIME_MODEL_URI"] == "s3://models/digits/3"
    assert env["PADDLE_RUNTIME_MODEL_VERSION"] == "3"
    secret = next(e for e in container["env"] if e["name"] == "PADDLE_RUNTIME_STORE_SECRET_KEY")
    assert secret["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": "secret-key", "optional": False}


async def test_a_model_of_a_claim_is_mounted(harness: ServingHarness) -> None:
    template = await template_of(harness, default={"model": {"claim": "exports", "path": "digits/1"}})
    [volume] = template["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "exports", "readOnly": True}
    container = template["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["PADDLE_RUNTIME_MODEL_URI"] == f"{container['volumeMounts'][0]['mountPath']}/digits/1"
    assert env["PADDLE_RUNTIME_MODEL_NAME"] == "lac"


FETCHED = {"model": {"uri": "s3://models/lac/1"}}
CACHE = "/var/cache/paddle-runtime"


@pytest.fixture
async def with_cache() -> AsyncIterator[ServingHarness]:
    async with running_on("Kubernetes", model_cache="/var/models") as made:
        yield made


async def test_replicas_of_a_node_and_namespace_share_fetched_models(with_cache: ServingHarness) -> None:
    pod = (await template_of(with_cache, default=FETCHED))["spec"]
    [volume], [mount] = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume == {"name": mount["name"], "hostPath": {"path": "/var/models", "type": "Directory"}}
    assert (mount["mountPath"], mount["subPath"]) == (CACHE, "default")


async def test_a_volume_of_the_users_own_takes_the_place_of_the_nodes_folder(
    with_cache: ServingHarness,
) -> None:
    volumes = [{"name": "cache", "persistentVolumeClaim": {"claimName": "models"}}]
    mounts = [{"name": "cache", "mountPath": CACHE}]
    pod = (await template_of(with_cache, default=FETCHED, volumes=volumes, volumeMounts=mounts))["spec"]
    assert (pod["volumes"], pod["containers"][0]["volumeMounts"]) == (volumes, mounts)


@pytest.mark.parametrize(
    "default", [{"model": {"claim": "exports"}}, {"model": {"uri": "/models/lac"}}, make_endpoint("1")]
)
async def test_what_is_not_fetched_needs_no_folder_of_the_node(
    with_cache: ServingHarness, default: Object
) -> None:
    pod = (await template_of(with_cache, default=default))["spec"]
    assert not [volume for volume in pod.get("volumes", ()) if "hostPath" in volume]


# Names of revisions


def test_equal_content_has_one_name_and_other_content_another() -> None:
    assert revision().name == revision().name
    assert revision().name != revision(default=make_endpoint("2")).name
    assert revision().name != revision(workingDir="/srv").name


def test_the_number_of_pods_and_the_history_are_not_part_of_a_revision() -> None:
    assert revision(service={"minScale": 3, "maxScale": 9}).name == revision(service={}).name
    assert revision(revisionHistoryLimit=1, canaryTrafficPercent=3).name == revision().name


def test_a_number_and_its_text_are_the_same_revision() -> None:
    as_text = revision(default=make_endpoint("1"), service={"panicWindow": "10", "window": "60s"})
    as_number = revision(default=make_endpoint(1), service={"panicWindow": 10, "window": 60})  # type: ignore[arg-type]
    assert as_text.name == as_number.name


def test_a_new_runtime_image_starts_no_revision_anew() -> None:
    raw = make_service(default={"model": {"uri": "s3://m"}})
    raw["metadata"] |= {"uid": "u"}
    service = parse_service(raw)
    assert service.spec.default is not None
    made = [revision_of(service, service.spec.default, {}, Options(runtime_image=i)) for i in ("a:1", "a:2")]
    assert made[0] is not None
    assert made[1] is not None
    assert made[0].name == made[1].name


# Quantities


def test_limits_below_the_default_requests_lower_them() -> None:
    made = completed({}, {"cpu": "100m"}, DEFAULT_RESOURCES)
    assert made["requests"]["cpu"] == "100m"
    assert made["limits"] == {"cpu": "100m", "memory": "512Mi"}


def test_resources_of_other_names_are_passed_on() -> None:
    made = completed({}, {"nvidia.com/gpu": 1}, DEFAULT_RESOURCES)
    assert made["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in made["requests"]
