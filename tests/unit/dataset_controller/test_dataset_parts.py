"""The parts around the plans: pace, ownership, wakes, metrics, settings, the domain's purity."""

from __future__ import annotations

from typing import Any

import pytest

from dataset_controller.apply import claim
from dataset_controller.config import Settings
from dataset_controller.reconciler import Pace
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.executor import Refusal
from paddlewheel.testkit.clock import ManualClock


async def test_changing_figures_are_written_apart() -> None:
    clock = ManualClock()
    pace, key = Pace(5.0, clock), Key("default", "digits")
    assert pace.is_due(key)
    pace.mark(key)
    assert not pace.is_due(key)
    await clock.advance(5)
    assert pace.is_due(key)
    pace.mark(key)
    pace.forget(key)
    assert pace.is_due(key)


@pytest.mark.parametrize(
    ("kind", "meta", "refused"),
    [
        ("Service", {"namespace": "n", "ownerReferences": [{"uid": "u", "controller": True}]}, ""),
        ("Service", {"namespace": "n", "ownerReferences": [{"uid": "u"}]}, "OwnedByAnother"),
        ("Service", {"namespace": "n"}, "OwnedByAnother"),
        ("PersistentVolume", {"annotations": {"paddlepaddle.org/sampleset-uid": "u"}}, ""),
        (
            "PersistentVolume",
            {"annotations": {"paddlepaddle.org/sampleset-uid": "other"}},
            "OwnedByAnother",
        ),
        ("PersistentVolumeClaim", {"namespace": "n"}, "OwnedByAnother"),
    ],
)
def test_only_the_sets_own_children_are_accepted(kind: str, meta: dict[str, Any], refused: str) -> None:
    found = claim(kind, {"metadata": {"name": "x", **meta}}, "u")
    if not refused:
        assert found is None
        return
    assert isinstance(found, Refusal)
    assert found.reason == refused
    assert "delete it or rename the set" in found.message


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_IMAGE", "example/runtime:2")
    monkeypatch.setenv("DATASET_CONTROLLER_NATS_URL", "nats://bus:4222")
    runtime = Settings().runtime
    assert (runtime.image, runtime.nats_url) == ("example/runtime:2", "nats://bus:4222")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_IMAGE", "example/runtime:3")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_URL", "nats://outside:4222")
    runtime = Settings().runtime
    assert (runtime.image, runtime.nats_url) == ("example/runtime:3", "nats://outside:4222")


def test_replicas_always_share_the_objects() -> None:
    assert Settings().replicas_share is True
