"""Which engine serves, what is said without one, and how a service moves from one to the other."""

from __future__ import annotations

import pytest
from tests.unit.serving_controller.conftest import DRAIN, LAC, ServingHarness, to_second_version

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import (
    AUTOSCALERS,
    DEPLOYMENTS,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PODS,
    Object,
    Resource,
)
from paddlewheel.testkit.paddleservices import PlainServing, make_endpoint
from serving_controller.domain.names import LABEL_REVISION, LABEL_SERVICE


async def test_knative_appears_and_the_old_engine_serves_until_the_new_one_is_ready(
    plain: ServingHarness,
) -> None:
    stable = await plain.served()
    plain.with_knative()
    await plain.drain_queue()
    assert await plain.reason("EngineReady") == ("True", "SwitchingEngine")
    assert await plain.names(KNATIVE_SERVICES) == ["lac"]
    assert (await plain.get(Key("default", stable), DEPLOYMENTS))["spec"]["replicas"] == 1
    assert await plain.reason("Ready") == ("True", "Serving")
    await plain.ready(stable)
    assert (await plain.status(LAC))["mode"] == "Knative"
    assert not await plain.names(DEPLOYMENTS)
    assert not await plain.names(HTTP_ROUTES)
    assert await plain.traffic() == {stable: 100}


async def test_the_route_of_the_old_engine_goes_before_what_it_leads_to(plain: ServingHarness) -> None:
    stable = await plain.served()
    plain.with_knative()
    await plain.drain_queue()
    deleted: list[str] = []

    def note(verb: str, resource: Resource, *_: object) -> None:
        if verb == "delete":
            deleted.append(resource.plural)

    with plain.intercepted(note):
        await plain.ready(stable)
    assert deleted[0] == "httproutes"
    assert {"deployments", "services", "horizontalpodautoscalers"} <= set(deleted)


async def test_a_service_that_moves_changes_first_where_it_is(plain: ServingHarness) -> None:
    await plain.served()
    plain.install_knative()
    await plain.drain_queue()
    second = await plain.revised(default=make_endpoint("2"))
    await plain.ready(second)
    assert await plain.traffic() == {second: 100}
    plain.with_knative()
    await plain.ready(second)
    assert (await plain.status(LAC))["mode"] == "Knative"
    assert await plain.traffic() == {second: 100}


async def test_knative_goes_and_the_recorded_revisions_serve_without_it(knative: ServingHarness) -> None:
    first, second = await to_second_version(knative)
    knative.without_knative()
    await knative.drain_queue()
    assert (await knative.status(LAC))["mode"] == "Kubernetes"
    assert await knative.stable() == first
    for revision in await PlainServing(knative.cluster, LAC).running():
        await knative.serving.make_ready(revision)
    await knative.drain_queue()
    await knative.route()
    assert await knative.traffic() == {second: 100}


async def test_knative_is_asked_for_and_absent(plain: ServingHarness) -> None:
    await plain.apply(mode="Knative")
    condition = await plain.condition(LAC, "EngineReady")
    assert (condition["status"], condition["reason"]) == ("False", "KnativeMissing")
    assert "set spec.mode to Auto" in condition["message"]
    assert not await plain.names(DEPLOYMENTS)
    plain.with_knative()
    await plain.drain_queue()
    await plain.play()
    assert await plain.reason("Ready") == ("True", "Serving")


async def test_kubernetes_is_asked_for_beside_knative(knative: ServingHarness) -> None:
    await knative.apply(mode="Kubernetes")
    assert await knative.names(DEPLOYMENTS)
    assert not await knative.names(KNATIVE_SERVICES)


async def test_without_the_gateway_api_a_service_serves_and_a_canary_says_the_remedy(
    plain: ServingHarness,
) -> None:
    plain.without_gateway_api()
    await plain.apply()
    await plain.serving.make_ready(await plain.stable())
    await plain.drain_queue()
    assert await plain.reason("Ready") == ("True", "Serving")
    assert await plain.reason("RoutesReady") == ("True", "ServiceOnly")
    await plain.change(canary=make_endpoint("2"), canaryTrafficPercent=20)
    canary = await plain.newest()
    await plain.serving.make_ready(canary)
    await plain.drain_queue()
    condition = await plain.condition(LAC, "CanaryEndpointReady")
    assert (condition["status"], condition["reason"]) == ("False", "CannotSplit")
    assert "install it, or Knative" in condition["message"]
    assert (await plain.revision(canary)).get("traffic", 0) == 0


async def test_without_the_gateway_api_an_update_is_served_all_the_same(plain: ServingHarness) -> None:
    plain.without_gateway_api()
    await plain.apply()
    await plain.serving.make_ready(await plain.stable())
    await plain.drain_queue()
    await plain.change(default=make_endpoint("2"))
    second = await plain.newest()
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    assert await plain.stable() == second


async def test_a_route_that_is_deleted_by_hand_comes_back(plain: ServingHarness) -> None:
    stable = await plain.served()
    await plain.delete(LAC, HTTP_ROUTES)
    await plain.drain_queue()
    assert await plain.traffic() == {stable: 100}


async def test_a_route_that_is_changed_by_hand_is_corrected(plain: ServingHarness) -> None:
    stable = await plain.served()
    await plain.patch(LAC, {"spec": {"hostnames": ["evil.example.com"], "rules": []}}, HTTP_ROUTES)
    await plain.drain_queue()
    assert await plain.traffic() == {stable: 100}
    route = await plain.get(LAC, HTTP_ROUTES)
    assert route["spec"]["hostnames"] == ["lac.default.example.com"]


async def set_route(plain: ServingHarness, *conditions: Object) -> None:
    """What the gateway says of the route."""
    (parent,) = (await plain.get(LAC, HTTP_ROUTES))["spec"]["parentRefs"]
    status = {"parents": [{"parentRef": parent, "conditions": list(conditions)}]}
    await plain.set_status(LAC, status, HTTP_ROUTES)


async def test_a_route_that_the_gateway_refuses_is_a_condition(plain: ServingHarness) -> None:
    await plain.served()
    refused = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no"}
    await set_route(plain, refused)
    await plain.drain_queue()
    condition = await plain.condition(LAC, "RoutesReady")
    assert (condition["status"], condition["reason"]) == ("False", "RouteRefused")
    assert condition["message"] == "NotAllowedByListeners: no"


async def test_requests_do_not_move_to_a_revision_that_the_gateway_does_not_find(
    plain: ServingHarness,
) -> None:
    first, second = await to_second_version(plain)
    await plain.serving.make_ready(second)
    await plain.drain_queue()
    generation = (await plain.get(LAC, HTTP_ROUTES))["metadata"].get("generation", 0)
    accepted = {"type": "Accepted", "status": "True", "observedGeneration": generation}
    unresolved = {"type": "ResolvedRefs", "status": "False", "observedGeneration": generation}
    await set_route(plain, accepted, {**unresolved, "reason": "BackendNotFound", "message": "no"})
    await plain.drain_queue()
    assert await plain.traffic() == {first: 100, second: 0}
    # Nothing is wrong with what serves.
    assert await plain.reason("Ready") == ("True", "Serving")
    await plain.route()
    assert await plain.traffic() == {second: 100}


async def test_what_a_former_gateway_said_counts_no_more(plain: ServingHarness) -> None:
    _, second = await to_second_version(plain)
    await plain.introduced(second)
    route = await plain.get(LAC, HTTP_ROUTES)
    stale = {
        "parentRef": {"name": "former"},
        "conditions": [{"type": "Accepted", "status": "False", "observedGeneration": 1}],
    }
    parents = [stale, *route["status"]["parents"]]
    await plain.set_status(LAC, {"parents": parents}, HTTP_ROUTES)
    await plain.drain_queue()
    assert await plain.reason("RoutesReady") == ("True", "Routed")


async def test_a_canary_keeps_as_many_pods_as_may_be_needed(plain: ServingHarness) -> None:
    """At 5 % of the requests its autoscaler would remove those that it needs at 100."""
    first, second = await to_second_version(plain, rollout={}, service={"minScale": 3})
    await plain.ready(second)
    assert await plain.traffic() == {first: 95, second: 5}
    assert await least(plain, second) == 3
    await plain.patch(Key("default", first), {"spec": {"replicas": 7}}, DEPLOYMENTS)
    await plain.serving.make_ready(first)
    await plain.drain_queue()
    assert (await least(plain, first), await least(plain, second)) == (3, 7)


async def least(plain: ServingHarness, revision: str) -> int:
    autoscaler = await plain.get(Key("default", f"{revision}-pods"), AUTOSCALERS)
    return int(autoscaler["spec"]["minReplicas"])


async def test_a_backend_that_is_not_found_yet_is_no_cause_for_a_warning(plain: ServingHarness) -> None:
    await plain.apply()
    unresolved = {"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "no"}
    await set_route(plain, unresolved)
    await plain.drain_queue()
    assert await plain.reason("RoutesReady") == ("False", "RoutePending")
    await plain.play()
    assert await plain.reason("RoutesReady") == ("True", "Routed")
    assert not [event for event in await plain.kubernetes_events() if event.type == "Warning"]


async def test_the_autoscaler_keeps_its_number_of_pods(plain: ServingHarness) -> None:
    stable = await plain.served(service={"metric": "cpu", "target": 60, "minScale": 2, "maxScale": 8})
    [autoscaler] = await plain.objects(AUTOSCALERS)
    assert (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) == (2, 8)
    assert autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    await plain.patch(Key("default", stable), {"spec": {"replicas": 6}}, DEPLOYMENTS)
    await plain.drain_queue()
    assert (await plain.get(Key("default", stable), DEPLOYMENTS))["spec"]["replicas"] == 6


async def test_a_new_revision_starts_as_large_as_the_stable_one(plain: ServingHarness) -> None:
    stable = await plain.served(service={"maxScale": 8})
    await plain.patch(Key("default", stable), {"spec": {"replicas": 6}}, DEPLOYMENTS)
    await plain.serving.make_ready(stable)
    await plain.drain_queue()
    await plain.change(default=make_endpoint("2"))
    second = await plain.newest()
    assert (await plain.get(Key("default", second), DEPLOYMENTS))["spec"]["replicas"] == 6


@pytest.mark.parametrize(("most", "start"), [(0, "3"), (8, "3"), (2, "2"), (1, None)])
async def test_knative_starts_a_revision_as_large_as_the_stable_one(
    knative: ServingHarness, most: int, start: str | None
) -> None:
    stable = await knative.served()
    await make_pods(knative, stable, 3)
    await knative.change(default=make_endpoint("2"), service={"maxScale": most})
    template = (await knative.get(LAC, KNATIVE_SERVICES))["spec"]["template"]
    assert template["metadata"]["name"] != stable
    assert template["metadata"]["annotations"].get("autoscaling.knative.dev/initial-scale") == start


async def make_pods(harness: ServingHarness, revision: str, count: int) -> None:
    """Pods that Knative's autoscaler has added."""
    labels = {LABEL_SERVICE: LAC.name, LABEL_REVISION: revision}
    for number in range(count):
        metadata = {"name": f"{revision}-{number}", "namespace": LAC.namespace, "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
        await harness.create(pod, PODS)
    await harness.drain_queue()


async def test_a_fixed_number_of_pods_needs_no_autoscaler(plain: ServingHarness) -> None:
    stable = await plain.served(service={"minScale": 3, "maxScale": 3})
    assert not await plain.objects(AUTOSCALERS)
    assert (await plain.get(Key("default", stable), DEPLOYMENTS))["spec"]["replicas"] == 3
    await plain.change(service={"minScale": 4, "maxScale": 4})
    assert (await plain.get(Key("default", stable), DEPLOYMENTS))["spec"]["replicas"] == 4
    assert await plain.stable() == stable


async def test_an_old_revision_keeps_no_pods_and_no_autoscaler(plain: ServingHarness) -> None:
    first = await plain.served()
    await plain.change(default=make_endpoint("2"))
    await plain.ready(await plain.newest())
    await plain.advance(DRAIN + 1)
    assert (await plain.get(Key("default", first), DEPLOYMENTS))["spec"]["replicas"] == 0
    assert await plain.names(AUTOSCALERS) == [f"{await plain.stable()}-pods"]


async def test_a_metric_that_needs_knative_is_replaced_and_named(plain: ServingHarness) -> None:
    await plain.served(service={"metric": "rps", "target": 50})
    condition = await plain.condition(LAC, "AutoscalingAsAsked")
    assert (condition["status"], condition["reason"]) == ("False", "MetricUnavailable")


async def test_a_fixed_number_of_pods_needs_no_metric(plain: ServingHarness) -> None:
    await plain.served(service={"minScale": 2, "maxScale": 2})
    conditions = (await plain.status(LAC))["conditions"]
    assert "AutoscalingAsAsked" not in {condition["type"] for condition in conditions}


async def test_the_limits_of_a_running_knative_revision_change_without_a_new_one(
    knative: ServingHarness,
) -> None:
    stable = await knative.served()
    await knative.change(service={"minScale": 2})
    revision = await knative.get(Key("default", stable), KNATIVE_REVISIONS)
    assert revision["metadata"]["annotations"]["autoscaling.knative.dev/minScale"] == "2"
    assert await knative.serving.revisions() == [stable]
