"""A rule's two forms agree: the API server's CEL and the services' Python, on the same generated objects."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.crds.api import Api, Object, each, make

from paddlewheel.contracts.crds import PUBLISHED_KINDS, Kind
from paddlewheel.contracts.crds.admission import REFUSALS, WARNINGS
from paddlewheel.contracts.crds.admission_rules import AdmissionRule
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.violations import Violation, find_violations

pytestmark = pytest.mark.usefixtures("policies")

SEED = 7
OBJECTS = 200
"""Generated objects of each kind."""

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
KEYWORDS = ("must be at ", "must be one of ", "must have at ", "must match ")
"""Beginnings of what services say about a schema keyword, for which the server has words of its own."""
PATHS = ["train", "", "/", "a/../b", "..", "a*", ".", "/ssd/a", "a/..\n", "b..c"]
HOST_PATHS = ["/ssd", "/a:/b", "/", "ssd", "/a:", "/a/../b", ":/a", "/a:b", "/..a"]
SOURCES = [
    *("s3://bucket.example.com/x", "ftp://host/data", "s3://a/s3://b", "qingstor://", "bucket.example.com/x"),
    *("file:///data/x", "s3://key:secret@bucket/x", "s3://\nbucket", "S3://bucket/data"),
]
ROLE: dict[str, list[Any]] = {
    "replicas": [None, -1, 0, 1, 2, 101],
    "requests": [None, 1, 2],
    "limits": [None, 0, 1],
    "template": [None, {}, {"spec": {}}, TEMPLATE, TEMPLATE],
}
FAILURES = (
    ("exitCodes", 0),
    ("exitCodes", 137),
    ("reasons", "Evicted"),
    ("reasons", "Bored"),
    ("roles", "chief"),
)
FIELDS: dict[str, dict[str, list[Any]]] = {
    "PaddleJob": {
        "metadata.name": ["job", "j" * 52, "j" * 54, "j" * 57, "a.b", "1job"],
        "spec.cleanPodPolicy": [None, "", "Always", "OnFailed"],
        "spec.intranet": [None, "", "Service", "service", "Host"],
        "spec.withGloo": [None, -1, 0, 2, 3],
        "spec.elastic": [None, 0, 1],
        "spec.schedulingPolicy.minAvailable": [None, 0, 1, 300],
        "spec.failurePolicy.restartScope": [None, "Pod", "All"],
        "spec.failurePolicy.rules": [
            *(None, [], [{}], [{"action": "Ignore"}, {"action": "Explode"}]),
            *([{"action": "Restart", name: [value]}] for name, value in FAILURES),
        ],
        "spec.sampleSetRef": [None, None, {}],
        "spec.sampleSetRef.name": [None, "", "set"],
        "spec.sampleSetRef.mountPath": [None, "", "/data", "data", "/a:b", "/", "./.", "/data\n"],
        "spec.sampleSetRef.namespace": [None, "", "default", "other"],
        **{f"spec.{role}.{name}": values for role in ("worker", "ps") for name, values in ROLE.items()},
    },
    "SampleSet": {
        "metadata.name": ["set", "s" * 44, "s" * 45, "a.b", "1set"],
        "spec.partitions": [None, 0, 1],
        "spec.noSync": [None, False, True],
        "spec.secretRef": [None, {}, {"name": ""}, {"name": "engine"}],
        "spec.source.uri": [None, *SOURCES],
        "spec.csi.driver": [None, "juicefs", "alluxio"],
        "spec.csi.juiceFSMountOptions.free-space-ratio": [
            *(None, "", "0.2", "1", "20%", "-0.1", "+.5", "1e-2", "0.2\n"),
        ],
        "spec.csi.juiceFSMountOptions.cache-dir": [None, "", *HOST_PATHS],
        "spec.cache.levels": [
            *(None, []),
            *([{"path": path, "mediumType": medium}] for path in HOST_PATHS for medium in ("SSD", "TAPE")),
        ],
        "spec.warmup.paths": [None, [], *([path, "train"] for path in PATHS)],
    },
    "SampleJob": {
        "metadata.name": ["op", "o" * 53, "o" * 54],
        "spec.type": [None, "sync", "warmup", "rmr", "clear", "prefetch"],
        "spec.sampleSetRef": [None, {}, {"name": ""}, {"name": "set"}],
        "spec.secretRef": [None, {}, {"name": "keys"}],
        "spec.syncOptions.source": [None, "", *SOURCES],
        "spec.syncOptions.destination": [None, *PATHS],
        "spec.syncOptions.threads": [None, -1, 0, 5],
        "spec.syncOptions.worker": [None, "w"],
        "spec.warmupOptions.paths": [None, [], *([path] for path in PATHS)],
        "spec.warmupOptions.file": [None, *PATHS],
        "spec.warmupOptions.strategyName": [None, "random", "fast", "sampler"],
        "spec.warmupOptions.sampler": [
            None,
            {},
            {"batchSize": 0},
            {"batchSize": 64, "epoch": -1},
            {"batchSize": 8},
            *({"batchSize": 8, "extensions": names} for names in ([], [""], [".npy"], ["x" * 256])),
        ],
        "spec.rmrOptions.paths": [None, [], *([path, "a"] for path in PATHS)],
        "spec.clearOptions.paths": [None, *([path] for path in HOST_PATHS)],
    },
}
"""Values of fields, most of which some rule has an opinion about; None = absent."""


def generated(kind: Kind) -> Iterator[Object]:
    """A valid object with one to four fields changed."""
    chance = random.Random(f"{SEED} {kind.kind}")
    fields = FIELDS[kind.kind]
    for _ in range(OBJECTS):
        chosen = chance.sample(sorted(fields), chance.randint(1, 4))
        yield make(kind.kind, {name: chance.choice(fields[name]) for name in chosen})


def rules_of(table: tuple[tuple[Kind, tuple[AdmissionRule, ...]], ...], kind: Kind) -> list[AdmissionRule]:
    return [rule for of, rules in table if of is kind for rule in rules]


def is_reported(violation: Violation, causes: list[dict[str, str]]) -> bool:
    return any(
        violation.field == cause["field"] and violation.message in cause["message"] for cause in causes
    )


@pytest.mark.parametrize("kind", PUBLISHED_KINDS, ids=lambda kind: kind.kind)
async def test_server_and_services_agree(kind: Kind, api: Api) -> None:
    refusals, warnings = rules_of(REFUSALS, kind), rules_of(WARNINGS, kind)
    seen: set[str] = set()

    async def check(obj: Object) -> None:
        subject = parse_subject(kind, obj)
        violations = find_violations(kind, subject)
        refused = [rule.text(subject) for rule in refusals if rule.is_true_of(subject)]
        answer = await api.send(obj)
        verdict = not answer.error
        assert verdict == (not violations and not refused), (obj, answer, violations)
        causes = answer.status.get("details", {}).get("causes", [])
        # "<nil>": rules that the server did not check because a keyword was violated. What the subresource
        # `scale` demands of a number of replicas is about a path, which begins with a dot.
        fields = {cause["field"].removeprefix(".") for cause in causes} - {"<nil>"}
        assert refused or fields <= {violation.field for violation in violations}, (obj, answer, violations)
        reported = {(v.field, v.message) for v in violations if is_reported(v, causes)}
        if not refused and not any(v.message.startswith(KEYWORDS) for v in violations):
            assert reported == {(v.field, v.message) for v in violations}, (obj, answer)
        seen.update(message for _, message in reported)
        seen.update(text for text in refused if text in answer.error)
        ours = {rule.text(subject) for rule in warnings if rule.is_true_of(subject)}
        if verdict:
            theirs = {line for line in answer.warnings if not line.startswith("unknown field")}
            assert theirs == ours, (obj, theirs, ours)
            seen.update(ours)

    await each({str(number): obj for number, obj in enumerate(generated(kind))}, check)
    assert len(seen) >= _LEAST_SEEN[kind.kind], sorted(seen)


_LEAST_SEEN = {"PaddleJob": 12, "SampleSet": 6, "SampleJob": 6}
"""Different texts that the generated objects must provoke, so that the comparison compares something."""
