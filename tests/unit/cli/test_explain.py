"""`paddlewheel job explain`: one reason, its meaning and what to do, from the job's status."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paddlewheel.cli.advice import ADVICE
from paddlewheel.cli.explain import Explanation, explain, print_explanation, with_lines
from paddlewheel.cli.output import Format
from paddlewheel.cli.repo import repo_file
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.reasons import Reason
from paddlewheel.kube.objects import owner_reference
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.paddlejobs import make_paddle_job

NEVER_THE_REASON_OF_A_JOB = {
    *("ACCEPTED", "NOTHING_TO_WAIT_FOR", "SAMPLE_SET_READY", "RECOVERED", "WORD_KNOWN", "UNKNOWN_WORD"),
    *(
        "SUCCESSFUL_CREATE",
        "SCALED",
        "RESTARTED",
        "RESUMED",
        "TTL_EXPIRED",
        "PROGRESSING",
    ),
    *("RESIZED", "TEMPLATE_CHANGED", "RESTART_REQUESTED", "IN_EFFECT", "WITHOUT_EFFECT"),
    *("BESIDE_DATA", "SPILLED_OVER", "EVICTED_BY_QUEUE", "NOT_ADMITTED"),
    # Of a SampleSet.
    *("SECRET_NOT_FOUND", "INVALID_SECRET", "INVALID_SOURCE", "UNKNOWN_ENGINE", "SYNC_FAILED"),
    *("SECRET_NOT_SHARED", "NAMESPACE_NOT_SERVED", "STOPPED"),
    *("SOURCE_NOT_ALLOWED", "CACHE_PATH_NOT_ALLOWED", "VOLUME_LAYOUT_CHANGED"),
}
"""Words of events, of restarts and of conditions that explain nothing."""


def job(**status: Any) -> Object:
    return make_paddle_job("resnet", "team-a") | {"status": status}


def test_every_reason_that_a_job_may_show_has_a_remedy() -> None:
    sources = repo_file("services/job-controller/src").rglob("*.py")
    used = {name for source in sources for name in re.findall(r"\bReason\.([A-Z_]+)", source.read_text())}
    assert used - NEVER_THE_REASON_OF_A_JOB - {reason.name for reason in ADVICE} == set()


@pytest.mark.parametrize("reason", ADVICE)
def test_a_remedy_is_of_the_namespace_of_the_job(reason: Reason) -> None:
    remedy = explain(job(phase="Pending", reason=reason)).remedy
    assert "{" not in remedy
    for verb in re.findall(r"kubectl (.*)", remedy):
        assert verb.startswith(("-n team-a ", "describe node")), remedy


def test_a_reason_is_said_with_its_meaning_its_message_and_what_to_do() -> None:
    said = explain(job(phase="Pending", reason="Suspended", message="spec.suspend is set"))
    assert said.text() == (
        "team-a/resnet is Pending: Suspended\n"
        "  spec.suspend is set; a suspended job has no pods.\n"
        "  spec.suspend is set\n"
        "  to do: paddlewheel job resume team-a/resnet"
    )


def test_a_training_that_hangs_is_not_said_to_run() -> None:
    stalled = {"type": "Stalled", "status": "True", "reason": "NoProgress", "message": "silent after step 7"}
    running = {"phase": "Running", "reason": "AllPodsRunning", "message": "2 of 2"}
    said = explain(job(**running, conditions=[stalled]))
    assert (said.reason, said.message) == ("NoProgress", "silent after step 7")
    assert "paddlewheel job restart team-a/resnet" in said.remedy
    again = {**stalled, "status": "False", "reason": "Progressing"}
    assert explain(job(**running, conditions=[again])).reason == "AllPodsRunning"


def test_a_job_that_nobody_has_seen_and_a_reason_that_is_new() -> None:
    assert "check job-controller" in explain(job()).remedy
    assert explain(job(phase="Pending", reason="FromTheFuture")).remedy == "see the message"


class Logs(MemoryCluster):
    """Every container has written two lines."""

    async def read_log(self, *_: Any, **__: Any) -> str:
        return "step 9\nloss is NaN\n"


async def test_the_end_of_the_output_is_shown_of_the_pod_that_is_the_cause() -> None:
    cluster = Logs()
    failed = "pod resnet-worker-1 failed (Error, exit code 3): loss is NaN"
    found = job(phase="Failed", reason="PodFailed", message=failed)
    said = explain(found)
    assert (await with_lines(cluster, said, found)).lines == (), "the pod is gone"
    metadata = {"name": "resnet-worker-1", "namespace": "team-a"}
    await cluster.create(PODS, {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
    shown = await with_lines(cluster, said, found)
    assert (shown.pod, shown.lines) == ("resnet-worker-1", ("step 9", "loss is NaN"))
    assert "  | loss is NaN\n" in shown.text()


@pytest.mark.parametrize("is_own", [True, False])
async def test_lines_that_were_kept_with_the_job_replace_those_of_a_pod_that_is_gone(is_own: bool) -> None:
    cluster = MemoryCluster()
    message = "pod resnet-worker-1 failed (Error, exit code 3): loss is NaN"
    found = await cluster.create(PADDLE_JOBS, job())
    owner = owner_reference(found, PADDLE_JOBS) | ({} if is_own else {"uid": "earlier"})
    metadata = {"namespace": "team-a", "name": kept_logs_name("resnet"), "ownerReferences": [owner]}
    data = {"resnet-worker-1": "step 9\nloss is NaN\n"}
    await cluster.create(CONFIG_MAPS, {"metadata": metadata, "data": data})
    said = explain(found | {"status": {"phase": "Failed", "reason": "PodFailed", "message": message}})
    expected = ("step 9", "loss is NaN") if is_own else ()
    assert (await with_lines(cluster, said, found)).lines == expected


@pytest.mark.parametrize(
    ("reason", "message", "container"),
    [
        ("PodFailed", "pod resnet-worker-1 failed (Error, exit code 3): loss is NaN", "main"),
        ("PodFailed", "pod resnet-worker-1 failed in container fetch (Error, exit code 3)", "fetch"),
        ("CrashLoopBackOff", "pod resnet-worker-1: container fetch ended with exit code 3", "fetch"),
    ],
)
async def test_the_output_is_that_of_the_container_that_is_the_cause(
    reason: str, message: str, container: str
) -> None:
    class One(MemoryCluster):
        async def read_log(self, *_: Any, container: str, **__: Any) -> str:
            return container

    cluster = One()
    metadata = {"name": "resnet-worker-1", "namespace": "team-a"}
    await cluster.create(PODS, {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
    found = job(phase="Starting", reason=reason, message=message)
    said = await with_lines(cluster, explain(found), found)
    assert (said.pod, said.lines) == ("resnet-worker-1", (container,))


@pytest.mark.parametrize("placement", ["Required", "Preferred"])
def test_workers_that_may_run_beside_their_data_only_may_be_let_go(placement: str) -> None:
    message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector"
    stuck = job(phase="Pending", reason="Unschedulable", message=message)
    stuck["spec"]["sampleSetRef"] = {"name": "set", "mountPath": "/data", "placement": placement}
    assert ("placement to Preferred" in explain(stuck).remedy) == (placement == "Required")


def test_a_queue_that_cannot_be_used_has_a_remedy() -> None:
    remedy = explain(job(phase="Pending", reason="QueueNotUsable")).remedy
    assert "kueue.x-k8s.io/queue-name" in remedy
    assert "kubectl -n team-a get localqueues.kueue.x-k8s.io" in remedy


@pytest.mark.parametrize(
    ("reason", "message", "remedies"),
    [
        ("Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.", ["resources.requests"]),
        (
            "Unschedulable",
            "1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {a: b}",
            ["resources.requests", "tolerate the taints"],
        ),
        ("Unschedulable", "3 node(s) didn't have free ports for the requested pod ports", ["hostPort"]),
        ("Unschedulable", "node(s) didn't match Pod's node affinity/selector", ["nodeSelector"]),
        ("Unschedulable", "in words of another scheduler", ["resources.requests"]),
        ("BackoffLimitExceeded", "pod a failed (OOMKilled, exit code 137)", ["limits.memory"]),
        ("FailureRule", "pod a failed (OOMKilled, exit code 137)", ["limits.memory"]),
        ("BackoffLimitExceeded", "pod a failed (Error, exit code 1)", ["backoffLimit"]),
    ],
)
def test_the_remedy_is_for_every_cause_that_the_message_names(
    reason: str, message: str, remedies: list[str]
) -> None:
    known = ("resources.requests", "tolerate the taints", "hostPort", "nodeSelector", "limits.memory")
    remedy = explain(job(phase="Pending", reason=reason, message=message)).remedy
    assert [word for word in (*known, "backoffLimit") if word in remedy] == remedies


def test_a_script_reads_the_job_by_its_kind() -> None:
    said = explain(job(phase="Pending", reason="Suspended", message="spec.suspend is set")).as_json()
    assert said["job"] == "team-a/resnet"
    assert list(said) == ["job", "phase", "reason", "means", "message", "toDo", "pod", "lines"]


def test_lines_of_a_pod_do_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Explanation({"job": "a/b"}, "Failed", "PodFailed", "", "", "", lines=("\x1b[2Jdone",))

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_explanation(said, Format.TEXT)
    assert "\n  | \\x1b[2Jdone\n" in capsys.readouterr().out


def test_words_are_reasons() -> None:
    assert {Reason[name] for name in NEVER_THE_REASON_OF_A_JOB}
