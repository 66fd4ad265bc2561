"""Sets and jobs as the domain sees them, for tests of pure code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import (
    Children,
    ObservedSet,
    RuntimeConfig,
    RuntimePod,
    SampleSet,
    SetSpec,
)
from dataset_controller.domain.sampleset.parse import parse_runtime_pod, parse_set
from paddlewheel.contracts.dataset_names import home_label, node_label, set_label
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.samplesets import make_report, make_sample_job, make_sample_set, make_secret

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CONFIG = RuntimeConfig("runtime:1", "nats://bus:4222")
OWNER_UID = "uid-1"
RUNTIME = Key("default", "digits-runtime")
"""The runtime of a set in the namespace of the release, with the names of the published contract."""
CLAIM_UID, VOLUME_UID = "claim-uid", "volume-uid"
LABEL = node_label("default", "digits")
HOME = home_label("default", "digits")


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str = "", seconds: float = 0) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": ago(seconds),
    }


def node_figures(partition: int, percent: int, **changes: object) -> dict[str, object]:
    """A row of `status.cacheStatus.nodes` for a report of `make_report`."""
    figures = {
        "partition": partition,
        "node": f"node-{partition}",
        "mounted": True,
        "cachedPercent": percent,
        "cachedSize": "10 MiB",
        "cacheCapacity": "0 B",
        "stagedSize": "0 B",
        "hitRate": "",
    }
    return {**figures, **changes}


SYNCED = [condition("Synced", "True", "Synced")]


def make_set(
    phase: str = "",
    *,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
) -> SampleSet:
    """A set in a phase, with its finalizer, as the API server has stored it."""
    obj = make_sample_set(**{"partitions": 1, **(spec or {})})
    obj["metadata"] |= {
        "uid": OWNER_UID,
        "resourceVersion": "7",
        "generation": 3,
        "finalizers": ["paddlepaddle.org/sampleset-digits"],
        **(meta or {}),
    }
    obj["status"] = {"phase": phase, **(status or {})}
    return parse_set(obj)


def spec_of(sample_set: SampleSet) -> SetSpec:
    assert sample_set.spec is not None, sample_set.problem
    return sample_set.spec


def make_observed(
    phase: str = "",
    *,
    ready: int = 0,
    replicas: int | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    **changes: Any,
) -> ObservedSet:
    """A set in a phase whose children all exist, `ready` of its pods ready, labelled and reporting."""
    own = make_set(phase, spec=spec, status=status, meta=meta)
    nodes = tuple({"metadata": {"name": f"node-{i}", "labels": make_labels(i)}} for i in range(ready))
    seen = ObservedSet(
        own,
        engine_secret=make_secret(),
        source_secret=make_secret(),
        children=make_children(own, ready if replicas is None else replicas, ready),
        pods=tuple(make_pod(i) for i in range(ready)),
        nodes=nodes,
        reports=tuple(make_report(OWNER_UID, i, NOW) for i in range(ready)),
        runtime=RUNTIME,
    )
    return replace(seen, **changes)


def make_labels(index: int) -> dict[str, str]:
    return {LABEL: str(index), HOME: str(index), set_label("digits"): f"digits-runtime-{index}"}


def make_raw_pod(index: int, *, ready: bool = True) -> Object:
    name, labels = f"digits-runtime-{index}", {"name": "digits-runtime"}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": f"node-{index}"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def make_pod(index: int, *, ready: bool = True) -> RuntimePod:
    pod = parse_runtime_pod(make_raw_pod(index, ready=ready))
    assert pod is not None
    return pod


def make_children(own: SampleSet, replicas: int, ready: int) -> Children:
    spec, owner = spec_of(own), own.identity
    claim = render.claim(owner) | {"status": {"phase": "Bound"}}
    claim["metadata"]["uid"] = CLAIM_UID
    volume = render.volume(owner, spec, None, CLAIM_UID)
    volume["metadata"]["uid"] = VOLUME_UID
    runtime = render.stateful_set(owner, RUNTIME, spec, CONFIG, replicas)
    runtime["status"] = {"replicas": replicas, "readyReplicas": ready}
    values = {"engine.name": "old"}
    secret, service = render.secret(owner, RUNTIME, values), render.service(owner, RUNTIME)
    return Children(volume, claim, secret, service, runtime)


def make_observed_job(
    phase: str = "",
    run: str = "",
    *,
    meta: dict[str, Any] | None = None,
    set_phase: str = "Ready",
    **spec: Any,
) -> ObservedJob:
    """A job in a phase, with its finalizer, of a set that is Ready by default."""
    obj = make_sample_job(**spec)
    obj["metadata"] |= {
        "uid": "job-uid",
        "resourceVersion": "5",
        "generation": 1,
        "finalizers": ["paddlepaddle.org/samplejob-job"],
        **(meta or {}),
    }
    obj["status"] = {"phase": phase, "jobName": run}
    return ObservedJob(parse_job(obj), sample_set=make_set(set_phase), secret=make_secret("source"))


def make_other_job(
    name: str,
    phase: str = "",
    *,
    of: str = "digits",
    created: str = "",
    conditions: Sequence[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] = MappingProxyType({}),
    **spec: Any,
) -> SampleJob:
    """A SampleJob beside the observed one; it has a run unless it waits for one."""
    obj = make_sample_job(name, of=of, **spec)
    obj["metadata"] |= {"uid": f"uid-of-{name}", "generation": 1, "creationTimestamp": created, **meta}
    obj["status"] = {
        "phase": phase,
        "jobName": f"run-of-{name}" if phase else "",
        "conditions": list(conditions),
    }
    return parse_job(obj)
