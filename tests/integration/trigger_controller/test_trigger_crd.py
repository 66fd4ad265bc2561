"""The CRD on a real API server: bad Triggers are refused with field and remedy, good ones stored whole."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import TRIGGERS, Cluster
from paddlewheel.testkit.triggers import make_store_trigger, make_trigger

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "triggers").glob("*.yaml"))
FACT = {"type": "paddlewheel.datasets.v1.SampleSetReady"}
STORE = {"source": "s", "bucket": "b"}
WARM = {"spec": {"type": "warmup", "sampleSetRef": {"name": "digits"}}}
TRAIN = {
    "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}
}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no when": ({"when": None}, "spec.when", "set when.fact, when.objectStore or when.schedule"),
    "empty when": ({"when": {}}, "spec.when", "exactly one of fact, objectStore, schedule"),
    "both sources": (
        {"when": {"fact": FACT, "objectStore": STORE}},
        "spec.when",
        "or create several Triggers",
    ),
    "all sources": (
        {"when": {"fact": FACT, "objectStore": STORE, "schedule": {"cron": "@daily"}}},
        "spec.when",
        "or create several Triggers",
    ),
    "no cron": ({"when": {"schedule": {}}}, "spec.when.schedule.cron", "02:30 every day"),
    "four fields": ({"when": {"schedule": {"cron": "0 0 * *"}}}, "spec.when.schedule.cron", "should match"),
    "no shell": (
        {"when": {"schedule": {"cron": "$(id) * * * *"}}},
        "spec.when.schedule.cron",
        "should match",
    ),
    "time zone with a space": (
        {"when": {"schedule": {"cron": "@daily", "timeZone": "Asia Shanghai"}}},
        "spec.when.schedule.timeZone",
        "should match",
    ),
    "no deadline": (
        {"when": {"schedule": {"cron": "@daily", "startingDeadlineSeconds": 0}}},
        "spec.when.schedule.startingDeadlineSeconds",
        "greater than or equal to 1",
    ),
    "batch of a schedule": (
        {"when": {"schedule": {"cron": "@daily"}}, "batch": {"quietSeconds": 5}},
        "spec",
        "remove spec.batch",
    ),
    "no type": ({"when": {"fact": {}}}, "spec.when.fact.type", "name a fact"),
    "unknown fact": (
        {"when": {"fact": {"type": "paddlewheel.datasets.v1.SampleSetGone"}}},
        "spec.when.fact.type",
        "paddlewheel.datasets.v1.SampleSetReady",
    ),
    "a trigger's own fact": (
        {"when": {"fact": {"type": "paddlewheel.triggers.v1.TriggerFired"}}},
        "spec.when.fact.type",
        "supported values",
    ),
    "no bucket": (
        {"when": {"objectStore": {"source": "s"}}},
        "spec.when.objectStore.bucket",
        "name the bucket",
    ),
    "no source": (
        {"when": {"objectStore": {"bucket": "b"}}},
        "spec.when.objectStore.source",
        "last part of the webhook",
    ),
    "source no subject can carry": (
        {"when": {"objectStore": STORE | {"source": "a.b"}}},
        "spec.when.objectStore.source",
        "should match",
    ),
    "no events": (
        {"when": {"objectStore": STORE | {"events": []}}},
        "spec.when.objectStore.events",
        "at least 1",
    ),
    "unknown event": (
        {"when": {"objectStore": STORE | {"events": ["ObjectRead"]}}},
        "spec.when.objectStore.events[0]",
        "ObjectRemoved",
    ),
    "no create": ({"create": None}, "spec.create", "set create.sampleJob or create.paddleJob"),
    "both kinds": (
        {"create": {"sampleJob": WARM, "paddleJob": TRAIN}},
        "spec.create",
        "or create two Triggers",
    ),
    "no template": (
        {"create": {"sampleJob": {}}},
        "spec.create.sampleJob.spec",
        "the operation to run",
    ),
    "bad operation": (
        {"create": {"sampleJob": {"spec": {"type": "prefetch", "sampleSetRef": {"name": "x"}}}}},
        "spec.create.sampleJob.spec.type",
        "warmup",
    ),
    "sync without secret": (
        {"create": {"sampleJob": {"spec": {"type": "sync", "sampleSetRef": {"name": "x"}}}}},
        "spec.create.sampleJob.spec.secretRef.name",
        "name the Secret",
    ),
    "job without a role": (
        {"create": {"paddleJob": {"spec": {}}}},
        "spec.create.paddleJob.spec",
        "add spec.worker",
    ),
    "unknown policy": ({"concurrencyPolicy": "Queue"}, "spec.concurrencyPolicy", "Forbid"),
    "no quiet time": ({"batch": {"maxEvents": 3}}, "spec.batch.quietSeconds", "seconds without a new event"),
    "quiet time of 0": (
        {"batch": {"quietSeconds": 0}},
        "spec.batch.quietSeconds",
        "greater than or equal to 1",
    ),
    "negative history": (
        {"failedJobsHistoryLimit": -1},
        "spec.failedJobsHistoryLimit",
        "greater than or equal to 0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_bad_trigger_is_refused_with_field_and_remedy(
    case: str, cluster: Cluster, namespace: str
) -> None:
    change, field, says = REFUSED[case]
    trigger = make_trigger("bad", namespace)
    trigger["spec"] = {name: v for name, v in {**trigger["spec"], **change}.items() if v is not None}
    with pytest.raises(Permanent) as refusal:
        await cluster.create(TRIGGERS, trigger)
    assert field in refusal.value.message
    assert says in refusal.value.message


@pytest.mark.parametrize("name", ["t" * 41, "a.b"])
async def test_names_that_cannot_become_jobs_are_refused(name: str, cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Permanent, match=r"metadata\.name must have at most 40 characters and no '\.'"):
        await cluster.create(TRIGGERS, make_trigger(name, namespace))


async def test_a_trigger_without_spec_is_refused(cluster: Cluster, namespace: str) -> None:
    bare = make_trigger("bare", namespace)
    del bare["spec"]
    with pytest.raises(Permanent, match=r"set spec\.when and spec\.create"):
        await cluster.create(TRIGGERS, bare)


async def test_defaults_are_filled_in(cluster: Cluster, namespace: str) -> None:
    stored = await cluster.create(TRIGGERS, make_store_trigger("t" * 40, namespace))
    spec = stored["spec"]
    assert spec["when"]["objectStore"]["events"] == ["ObjectCreated"]
    assert spec["concurrencyPolicy"] == "Allow"
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 3)
    assert "suspend" not in spec


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_examples_are_stored_whole(path: Path, cluster: Cluster, namespace: str) -> None:
    trigger = yaml.safe_load(path.read_text())
    wanted = copy.deepcopy(trigger["spec"])
    trigger["metadata"]["namespace"] = namespace
    stored = await cluster.create(TRIGGERS, trigger)
    assert_within(wanted, stored["spec"], "spec")


def assert_within(wanted: Any, found: Any, path: str) -> None:
    """Everything that was sent is there; defaults may have come to it."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            assert name in found, f"{path}.{name} was pruned"
            assert_within(value, found[name], f"{path}.{name}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(found), path
        for index, value in enumerate(wanted):
            assert_within(value, found[index], f"{path}[{index}]")
    else:
        assert wanted == found, path
