"""Nodes that have lost the mount, by reports and pods, and when this service learned of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    CONFIG,
    NOW,
    OWNER_UID,
    ago,
    make_observed,
    make_pod,
)

from dataset_controller.domain.sampleset.model import ObservedSet, RuntimePod
from dataset_controller.domain.sampleset.plan import plan
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.testkit.samplesets import make_report

ENDED: dict[str, Any] = {"mounted": False, "ailment": "MountLost", "ailment_message": "juicefs mount ended"}
STOPPED: dict[str, Any] = {"mounted": False, "ailment": "Stopped", "ailment_message": "stopped"}
NOT_TRIED: dict[str, Any] = {"mounted": False, "message": "not mounted yet"}
AT = ago(0)


def report(partition: int = 1, **values: Any) -> NodeStatus:
    return make_report(OWNER_UID, partition, NOW, **values)


def lost(reason: str, message: str, *, since: str = AT, node: str = "node-1") -> dict[str, object]:
    return {"partition": 1, "node": node, "since": since, "reason": reason, "message": message}


def pod(*, agent: bool = True, **changes: Any) -> RuntimePod:
    return replace(make_pod(1, ready=False), has_agent=agent, **changes)


def observe(
    of_1: NodeStatus, pod_1: RuntimePod | None, *recorded: dict[str, object], phase: str = "Ready"
) -> ObservedSet:
    """Partition 0 is well."""
    return make_observed(
        phase,
        ready=2,
        spec={"partitions": 2, "noSync": True},
        status={"runtimeStatus": {"lostMounts": list(recorded)}},
        reports=(report(0), of_1),
        pods=(make_pod(0), *([pod_1] if pod_1 else ())),
    )


def lost_mounts(seen: ObservedSet) -> list[dict[str, object]]:
    status = plan(seen, CONFIG, NOW).status
    assert status is not None
    found: list[dict[str, object]] = status.render()["runtimeStatus"].get("lostMounts", [])
    return found


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_loss_begins_when_it_is_first_seen_whatever_the_nodes_clock_says(hours: int) -> None:
    at = NOW + timedelta(hours=hours)
    seen = observe(report(mount_changed_at=at, **ENDED), pod())
    assert lost_mounts(seen) == [lost("MountLost", "juicefs mount ended")]
    known = lost("MountLost", "juicefs mount ended", since=ago(20))
    assert lost_mounts(observe(seen.reports[1], pod(), known)) == [known]


def test_a_loss_keeps_its_time_while_its_cause_changes() -> None:
    before = lost("AgentEnded", "the runtime pod has ended", since=ago(20))
    failed = report(mounted=False, ailment="MountFailed", ailment_message="no such volume")
    assert lost_mounts(observe(failed, pod(), before)) == [
        lost("MountFailed", "no such volume", since=ago(20))
    ]


def test_a_pod_that_is_replaced_has_stopped_its_mount_until_the_next_agent_has_tried() -> None:
    stopped = lost("Stopped", "stopped", since=ago(20))
    assert lost_mounts(observe(report(**STOPPED), None)) == [lost("Stopped", "stopped")]
    pulling = pod(agent=False, trouble="ImagePullBackOff: no such image")
    assert lost_mounts(observe(report(**STOPPED), pulling, stopped)) == [
        lost("Stopped", "stopped; ImagePullBackOff: no such image", since=ago(20))
    ]
    assert lost_mounts(observe(report(**NOT_TRIED), pod(), stopped)) == [
        lost("Stopped", "not mounted yet", since=ago(20))
    ]
    assert lost_mounts(observe(report(**NOT_TRIED), pod())) == [lost("WaitingForMount", "not mounted yet")]


def test_the_mount_of_a_killed_agent_is_lost_at_once() -> None:
    mounted = report()
    ended = lost("AgentEnded", "the runtime pod has ended; CrashLoopBackOff")
    assert lost_mounts(observe(mounted, pod(agent=False, trouble="CrashLoopBackOff"))) == [ended]
    assert lost_mounts(observe(mounted, None)) == [lost("AgentEnded", "the runtime pod has ended")]
    assert lost_mounts(observe(mounted, pod(node="", agent=False))) == [
        lost("AgentEnded", "the runtime pod has ended")
    ]
    # The next agent runs, and the last report is still that of the one before.
    known = lost("AgentEnded", "the runtime pod has ended", since=ago(2))
    assert lost_mounts(observe(mounted, pod(), known)) == [known]


def test_a_silent_agent_or_one_that_is_about_to_end_has_its_mount_still() -> None:
    assert lost_mounts(observe(report(), pod())) == []
    old = report().model_copy(update={"updated_at": NOW - timedelta(hours=1)})
    assert lost_mounts(observe(old, pod(ends_at=NOW))) == []


def test_a_loss_ends_when_the_partition_is_ready_on_the_node_again() -> None:
    assert lost_mounts(observe(report(), make_pod(1), lost("MountLost", "gone", since=ago(20)))) == []


def test_the_node_that_a_partition_has_left_stays_named() -> None:
    moved = lost(
        "PartitionMoved",
        "partition 1 has moved to node node-2; restart the pods that still use the data on node node-1",
        since=ago(20),
    )
    before = lost("Stopped", "stopped", since=ago(20))
    # The new agent has not reported yet, and then it has.
    assert lost_mounts(observe(report(**STOPPED), pod(node="node-2", agent=False), before)) == [moved]
    ready = replace(make_pod(1), node="node-2")
    assert lost_mounts(observe(report(node="node-2"), ready, before)) == [moved]
    assert lost_mounts(observe(report(node="node-2"), ready, {**moved, "since": ago(3601)})) == []
    # Another partition has taken its place there.
    assert lost_mounts(observe(report(node="node-0"), pod(node="node-0"), {**before, "node": "node-0"})) == []


def test_partitions_that_the_set_no_longer_has_are_not_named() -> None:
    assert lost_mounts(observe(report(), make_pod(1), {**lost("Stopped", ""), "partition": 2})) == []
