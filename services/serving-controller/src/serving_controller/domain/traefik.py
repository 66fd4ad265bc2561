"""Figures of Traefik: which of its series are about a revision, and what they say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paddlewheel.contracts.keys import Key
from serving_controller.domain import names
from serving_controller.domain.judge import Counts

REQUESTS = "traefik_service_requests_total"
BUCKETS = "traefik_service_request_duration_seconds_bucket"
SERIES = (REQUESTS, BUCKETS)
_BACKEND = re.compile(r"(?P<name>.+?)(-http)?-[0-9]+@kubernetesgateway")
"""`httproute-<namespace>-<route>-<gateway, listener, hash>-svc-<namespace>-<Service>-<place in the rule>`;
releases before 3.7 wrote `<namespace>-<Service>-http-<port>`, and those before 3.4 left `http` out."""


@dataclass(frozen=True)
class Sample:
    """One line of a Prometheus endpoint."""

    name: str
    labels: Mapping[str, str]
    value: float


Readings = Mapping[str, Counts]
"""Totals by the backend's name without its end, since the proxy began."""


def read(samples: Iterable[Sample]) -> dict[str, Counts]:
    """Totals of every backend."""
    requests: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    buckets: dict[str, Counter[float]] = {}
    for sample in samples:
        match = _BACKEND.fullmatch(sample.labels.get("service", ""))
        if match is None:
            continue
        backend, count = match["name"], int(sample.value)
        if sample.name == BUCKETS:
            buckets.setdefault(backend, Counter())[float(sample.labels["le"])] += count
        elif sample.name == REQUESTS:
            requests[backend] += count
            errors[backend] += count if sample.labels.get("code", "").startswith("5") else 0
    return {b: Counts(requests[b], errors[b], dict(buckets.get(b, {}))) for b in {*requests, *buckets}}


def of_revision(readings: Readings, service: Key, revision: str) -> Counts:
    """Totals of a revision: behind our own Service, or behind Knative's; in whatever place of a rule.

    Only the service's own route counts: Services of others may have names that end alike. Our route has the
    service's name; Knative's begins with it.
    """
    backends = tuple(f"{service.namespace}-{name}" for name in (names.pods_of(revision), revision))
    route = f"httproute-{service.namespace}-{service.name}-"
    ends = tuple(f"-svc-{backend}" for backend in backends)
    return total(
        counts
        for name, counts in readings.items()
        if name in backends or (name.startswith(route) and name.endswith(ends))
    )


def growth(before: Counts, now: Counts) -> Counts:
    """What came since; a proxy that was started anew counts from 0, and may be beyond its former total."""
    shrunk = (count < before.buckets.get(edge, 0) for edge, count in now.buckets.items())
    if now.requests < before.requests or now.errors < before.errors or any(shrunk):
        return now
    buckets = {edge: count - before.buckets.get(edge, 0) for edge, count in now.buckets.items()}
    return Counts(now.requests - before.requests, now.errors - before.errors, buckets)


def total(parts: Iterable[Counts]) -> Counts:
    """Of several proxies."""
    summed = Counts()
    for part in parts:
        edges = {*summed.buckets, *part.buckets}
        buckets = {edge: summed.buckets.get(edge, 0) + part.buckets.get(edge, 0) for edge in edges}
        summed = Counts(summed.requests + part.requests, summed.errors + part.errors, buckets)
    return summed
