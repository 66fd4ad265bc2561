"""Which of Traefik's series are about a revision."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.testkit.paddleservices import make_service
from serving_controller.domain.judge import Counts
from serving_controller.domain.model import Options, parse_service
from serving_controller.domain.revision import revision_of
from serving_controller.domain.traefik import Sample, growth, of_revision, read

LAC = Key("team-a", "lac")
RULE = "httproute-team-a-lac-gw-gateways-main-ep-http-0-1c0cf64bde37d9d0df06"


def test_other_services_and_kinds_are_left_out() -> None:
    samples = [
        Sample("traefik_service_requests_total", {"service": name, "code": "200"}, 1.0)
        for name in (
            "team-a-lac-12-pods-http-80@kubernetesgateway",
            f"{RULE}-svc-team-a-lac-12-pods-0@kubernetesgateway",
            f"{RULE}-svc-b-team-a-lac-1-pods-0@kubernetesgateway",
            # Of another namespace, with a Service that is called `a-svc-team-a-lac-1-pods`.
            "httproute-b-lac-gw-gw-main-ep-http-0-5f-svc-b-a-svc-team-a-lac-1-pods-0@kubernetesgateway",
            "team-a-lac-1-pods-http-80@file",
            "",
        )
    ]
    assert of_revision(read(samples), LAC, "lac-1") == Counts()


def test_services_whose_names_are_joined_to_one_are_told_apart() -> None:
    def revision(key: Key) -> str:
        service = parse_service(make_service(key.name, key.namespace))
        end = service.spec.default
        made = revision_of(service, end, {}, Options()) if end else None
        assert made
        return made.name

    keys = (Key("a", "b-c"), Key("a-b", "c"))
    samples = [
        Sample(
            "traefik_service_requests_total",
            {
                "service": f"httproute-{key.namespace}-{key.name}-gw-gw-main-ep-http-0-{key.name}5f-svc"
                f"-{key.namespace}-{revision(key)}-pods-0@kubernetesgateway",
                "code": "200",
            },
            requests,
        )
        for key, requests in zip(keys, (3.0, 5.0), strict=True)
    ]
    assert [of_revision(read(samples), key, revision(key)).requests for key in keys] == [3, 5]


def test_growth_is_never_negative() -> None:
    assert growth(Counts(10, 2), Counts(4, 1)) == Counts(4, 1)


@pytest.mark.parametrize("now", [Counts(12, 1, {0.1: 12}), Counts(12, 3, {0.1: 4})])
def test_a_proxy_that_began_anew_and_overtook_its_former_total_is_recognized(now: Counts) -> None:
    assert growth(Counts(10, 2, {0.1: 8}), now) == now


def test_a_revision_is_counted_in_whatever_place_of_its_rule() -> None:
    names = [f"{RULE}-svc-team-a-lac-1-pods-{place}@kubernetesgateway" for place in range(2)]
    samples = [
        Sample("traefik_service_requests_total", {"service": name, "code": "200"}, 3.0) for name in names
    ]
    assert of_revision(read(samples), LAC, "lac-1").requests == 6
