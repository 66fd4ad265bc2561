"""`paddlewheel job` over a cluster in memory: what is created, followed, changed, shown, and refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from tests.unit.cli.conftest import text_of
from typer.testing import Result

from paddlewheel.cli import job as commands
from paddlewheel.cli import job_follow, job_run, logs, output
from paddlewheel.cli import main as program
from paddlewheel.cli.job import apply_change, wait_until_gone
from paddlewheel.cli.job_changes import scaling, suspension
from paddlewheel.cli.job_follow import ending, follow, waits_for
from paddlewheel.cli.job_run import create, generated_name
from paddlewheel.cli.job_tables import job as page
from paddlewheel.cli.job_tables import jobs as table
from paddlewheel.cli.output import Format
from paddlewheel.cli.target import Where, checked_namespace, find
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import owner_reference
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

Command = Callable[..., Result]
SINE = Key("team-a", "sine")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Cluster(MemoryCluster):
    """Every pod has written one line."""

    async def stream_log(self, pod: Key, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        stamp = b"2026-01-01T00:00:01.000000000Z " if query.get("timestamps") else b""
        yield stamp + f"{pod.name} learns\n".encode()

    async def show(self, **status: Any) -> Object:
        """What job-controller would write."""
        return await self.patch(PADDLE_JOBS, SINE, {"status": status}, subresource="status")

    async def add_pod(self) -> None:
        job = await self.get(PADDLE_JOBS, SINE)
        metadata = {
            "namespace": SINE.namespace,
            "name": "sine-worker-0",
            "labels": {"paddle-res-name": "sine-worker-0"},
            "ownerReferences": [owner_reference(job, PADDLE_JOBS)],
        }
        await self.create(PODS, {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
        runs = [{"name": "main", "containerID": "c", "state": {"running": {}}}]
        await self.patch(
            PODS,
            Key("team-a", "sine-worker-0"),
            {"status": {"containerStatuses": runs}},
            subresource="status",
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is looked at often."""
    monkeypatch.setattr(commands, "STATUS_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(job_follow, "STATUS_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(logs, "_RESUME_INTERVAL_SECONDS", 0.0)


async def created(cluster: Cluster, **spec: Any) -> Object:
    return await create(cluster, make_paddle_job(SINE.name, SINE.namespace, worker=make_role(2), **spec))


# Creating


async def test_a_name_that_is_taken_is_refused_with_what_to_do(cluster: Cluster) -> None:
    await created(cluster)
    with pytest.raises(
        Permanent, match=r"JobExists: .*another --name, or `paddlewheel job delete team-a/sine`"
    ):
        await created(cluster)


async def test_without_the_kind_the_chart_is_named(cluster: Cluster) -> None:
    cluster.uninstall(PADDLE_JOBS)
    for work in (created(cluster), find(cluster, PADDLE_JOBS, SINE)):
        with pytest.raises(Permanent, match=r"NotInstalled: .*PaddleJob: install the chart"):
            await work


async def test_a_missing_namespace_is_named_with_the_command_that_creates_it(cluster: Cluster) -> None:
    def intercept(verb: str, _: Resource, __: Key) -> None:
        if verb == "create":
            raise NotFound('namespaces "team-a" not found')

    cluster.intercept = intercept
    with pytest.raises(Permanent, match=r"NoSuchNamespace: .*`kubectl create namespace team-a`"):
        await created(cluster)


@pytest.mark.parametrize(
    ("image", "begins"),
    [
        ("registry.example.com:5000/team/Train_it:1", "train-it-"),
        ("train@sha256:0123", "train-"),
        ("x/" + "y" * 80, "y" * 40 + "-"),
        (":1", "job-"),
    ],
)
def test_a_generated_name_is_that_of_the_image_and_always_another(image: str, begins: str) -> None:
    names = {generated_name(image) for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(rf"{begins}[a-z0-9]{{5}}", name) for name in names)


# Following


async def test_a_job_is_followed_to_its_end_with_what_its_pods_write(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    job = await created(cluster)
    following = asyncio.create_task(follow(cast(ApiCluster, cluster), job, Format.TEXT))
    said: list[str] = []

    async def tells(text: str) -> None:
        def heard() -> bool:
            captured = capsys.readouterr()
            said.append(captured.err + captured.out)
            return text in "".join(said)

        await eventually(heard, what=text)

    await tells("team-a/sine: waiting for job-controller\n")
    await cluster.show(phase="Pending", ready="0/2", reason="SampleSetNotReady", message="set is at 40 %")
    await tells("team-a/sine: Pending, 0/2 ready, SampleSetNotReady: set is at 40 %\n")
    await cluster.add_pod()
    await cluster.show(phase="Running", ready="2/2")
    await tells("worker-0 | sine-worker-0 learns\n")
    await cluster.show(phase="Completed", duration="3m20s", results={"loss": 0.000039, "epochs": 2000})
    ended = await following
    assert ending(ended) == "Completed after 3m20s; loss 3.9e-05, epochs 2000"
    assert "".join(said).count("waiting for job-controller") == 1


async def test_a_job_that_fails_before_it_runs_ends_the_following_without_lines(cluster: Cluster) -> None:
    job = await created(cluster)
    await cluster.show(phase="Failed", reason="PodFailed", message="sine-worker-0 ended with exit code 2")
    ended = await follow(cast(ApiCluster, cluster), job, Format.TEXT)
    assert ending(ended) == "Failed: PodFailed: sine-worker-0 ended with exit code 2"


@pytest.mark.parametrize(
    ("verb", "resource", "error"),
    [
        ("get", CONFIG_MAPS, Permanent("Forbidden", "cannot get configmaps")),
        ("get", CONFIG_MAPS, Retry("ApiServerTimeout", "slow")),
        ("list", PODS, Retry("Unauthorized", "the token has expired")),
        ("watch", PADDLE_JOBS, Permanent("Forbidden", "cannot watch paddlejobs")),
        ("watch", PODS, Permanent("Forbidden", "cannot watch pods")),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Completed"])
async def test_a_job_has_completed_whatever_of_its_output_can_be_read(
    cluster: Cluster, verb: str, resource: Resource, error: Exception, phase: str
) -> None:
    job = await created(cluster)
    await cluster.add_pod()
    await cluster.show(phase=phase)
    failed = asyncio.Event()

    def intercept(*call: Any) -> None:
        if call[:2] == (verb, resource):
            failed.set()
            raise error

    cluster.intercept = intercept
    following = asyncio.create_task(follow(cast(ApiCluster, cluster), job, Format.TEXT))
    if (verb, phase) != ("get", "Running"):
        await eventually(lambda: failed.is_set() or following.done())
    await cluster.show(phase="Completed", duration="2s")
    assert ending(await following).startswith("Completed")


async def test_for_scripts_nothing_is_printed_until_the_end(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    job = await created(cluster)
    await cluster.add_pod()
    following = asyncio.create_task(follow(cast(ApiCluster, cluster), job, Format.JSON))
    await cluster.show(phase="Running", ready="2/2")
    await asyncio.sleep(0)
    await cluster.show(phase="Completed")
    await following
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("output", [Format.JSON, Format.TEXT])
async def test_a_job_that_is_deleted_as_it_ends_has_ended(cluster: Cluster, output: Format) -> None:
    """Its time to live is 0."""
    job = await created(cluster, ttlSecondsAfterFinished=0)
    looks = 0

    def intercept(verb: str, resource: Resource, _: Key) -> None:
        nonlocal looks
        looks += (verb, resource) == ("get", PADDLE_JOBS)

    cluster.intercept = intercept
    following = asyncio.create_task(follow(cast(ApiCluster, cluster), job, output))
    await eventually(lambda: looks > 0, what="it is followed")
    await cluster.show(phase="Completed", duration="2s")
    await cluster.show(phase="Terminating")
    await cluster.delete(PADDLE_JOBS, SINE)
    assert ending(await following) == "Completed after 2s"


async def test_a_job_that_is_replaced_while_it_is_followed_is_not_mistaken_for_the_new_one(
    cluster: Cluster,
) -> None:
    job = await created(cluster)
    await cluster.delete(PADDLE_JOBS, SINE)
    await created(cluster)
    await cluster.show(phase="Completed")
    with pytest.raises(Permanent, match=r"JobDeleted: .*`paddlewheel events --job team-a/sine --since 1d"):
        await follow(cast(ApiCluster, cluster), job, Format.TEXT)


async def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_following(cluster: Cluster) -> None:
    job = await created(cluster)
    await cluster.show(phase="Failed", reason="PodFailed")
    left = iter(range(3))

    def intercept(verb: str, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("get", PADDLE_JOBS) and next(left, None) is not None:
            raise Retry("ApiServerUnreachable", "cut")

    cluster.intercept = intercept
    assert ending(await follow(cast(ApiCluster, cluster), job, Format.JSON)) == "Failed: PodFailed"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "waiting for job-controller"),
        ({"phase": "Running", "ready": "2/2", "reason": "AllPodsRunning", "message": ""},
         "Running, 2/2 ready, AllPodsRunning"),
        ({"phase": "Pending"}, "Pending"),
    ],
)  # fmt: skip
def test_what_a_job_waits_for_is_said_in_one_line(status: dict[str, Any], said: str) -> None:
    assert waits_for({"metadata": {}, "status": status}) == said


# Changing


async def test_a_change_is_of_the_job_that_was_read_and_not_of_its_successor(cluster: Cluster) -> None:
    await created(cluster)
    uids: list[Any] = []
    patch = cluster.patch

    async def patched(resource: Resource, key: Key, change: Mapping[str, Any], **more: Any) -> Object:
        await cluster.delete(PADDLE_JOBS, SINE)
        await created(cluster)
        uids.append(change["metadata"]["uid"])
        return await patch(resource, key, change, **more)

    cluster.patch = patched  # type: ignore[method-assign,assignment]
    with pytest.raises(Permanent, match=r"metadata\.uid"):
        await apply_change(cluster, SINE, suspension)
    assert "suspend" not in (await cluster.get(PADDLE_JOBS, SINE))["spec"]


async def test_what_is_so_already_costs_no_write(cluster: Cluster) -> None:
    await created(cluster)
    cluster.writes.clear()
    assert (await apply_change(cluster, SINE, lambda job: scaling(job, 2))).patch == {}
    assert not cluster.writes
    await apply_change(cluster, SINE, lambda job: scaling(job, 3))
    assert (await cluster.get(PADDLE_JOBS, SINE))["spec"]["worker"]["replicas"] == 3


async def test_a_mistyped_name_is_answered_with_those_of_its_namespace(cluster: Cluster) -> None:
    for name, namespace in (("sine", "team-a"), ("cosine", "team-a"), ("secret", "team-b")):
        await cluster.create(PADDLE_JOBS, make_paddle_job(name, namespace))
    with pytest.raises(
        Permanent, match=r"NoSuchJob: PaddleJob team-a/sin not found; namespace team-a has: cosine, sine$"
    ):
        await apply_change(cluster, Key("team-a", "sin"), suspension)
    with pytest.raises(
        Permanent, match=r"namespace team-c has none; choose another with --namespace \(-n\)$"
    ):
        await find(cluster, PADDLE_JOBS, Key("team-c", "sine"))


async def test_a_deletion_is_waited_for_until_the_job_is_gone_or_another(cluster: Cluster) -> None:
    held = make_paddle_job(SINE.name, SINE.namespace)
    held["metadata"]["finalizers"] = ["finalizers.paddlepaddle.org"]
    job = await create(cluster, held)
    await cluster.delete(PADDLE_JOBS, SINE)
    with pytest.raises(Permanent, match=r"NotYet: .*deleted after 0 s, held by finalizers.paddlepaddle.org"):
        await wait_until_gone(cluster, job, 0)
    waiting = asyncio.create_task(wait_until_gone(cluster, job, 30))
    await cluster.patch(PADDLE_JOBS, SINE, {"metadata": {"finalizers": None}})
    await waiting
    await created(cluster)
    await wait_until_gone(cluster, job, 30)


# Showing


FULL = {
    "phase": "Restarting", "mode": "Collective", "ready": "1/2", "reason": "PodFailed",
    "message": "[x] exit code 1",
    "epoch": 3, "world": {"workers": 2, "of": 4}, "restarts": {"PodFailed": 2, "NodeLost": 1},
    "lastRestart": {"time": "2026-01-01T12:00:00Z", "reason": "NodeLost", "message": "node n1 is [gone]"},
    "worker": {"pending": 4, "starting": 5, "running": 6, "succeeded": 7, "failed": 8},
    "results": {"loss": 0.5},
    "conditions": [{"type": "Running", "status": "False", "reason": "Restarting", "message": "epoch [3]"}],
    "announcements": [
        {"fact": "JobRunning", "attempt": 0, "at": "2026-01-01T01:00:00Z", "announced": False},
        {"fact": "JobAccepted", "attempt": 0, "at": "2026-01-01T00:00:00Z", "announced": True},
    ],
}  # fmt: skip


def make_seen(**status: Any) -> Object:
    data = {"sampleSetRef": {"name": "set", "mountPath": "/data"}, "checkpointPath": "/data/c"}
    job = make_paddle_job(SINE.name, SINE.namespace, worker=make_role(2), **data)
    job["metadata"]["creationTimestamp"] = "2026-01-01T21:00:00Z"
    return {**job, "status": status}


def test_the_table_has_a_row_for_each_job() -> None:
    lines = text_of(table([make_seen(**FULL), make_seen()], NOW)).splitlines()
    assert [line.split() for line in lines] == [
        ["job", "phase", "mode", "ready", "reason", "restarts", "epoch", "age"],
        ["team-a/sine", "Restarting", "Collective", "1/2", "PodFailed", "3", "3", "3h"],
        ["team-a/sine", "0", "0", "3h"],
    ]


def test_a_job_is_shown_with_all_that_its_status_says() -> None:
    text = text_of(*page(make_seen(**FULL), NOW))
    for said in (
        "[x] exit code 1", "set at /data", "/data/c", "PodIP", "epoch [3]", "loss 0.5", "3h",
        "2 of 4 workers",
        "last restart: 2026-01-01T12:00:00Z NodeLost: node n1 is [gone]",
    ):  # fmt: skip
        assert said in text, said
    rows = [re.split(r"\s{2,}", line) for line in text.splitlines()]
    assert ["worker", "2", "4", "5", "6", "7", "8"] in rows
    assert ["NodeLost", "1"] in rows
    facts = [row for row in rows if row[0].startswith("Job")]
    assert facts == [
        ["JobAccepted", "2026-01-01T00:00:00Z", "yes"],
        ["JobRunning", "2026-01-01T01:00:00Z", "not confirmed"],
    ]


def test_how_far_a_training_is_and_who_schedules_it_are_text_of() -> None:
    progress = {"step": 120, "totalSteps": 500, "percent": "24%", "loss": 0.25, "eta": "2026-01-02T01:00:00Z"}
    gang = {"kind": "Volcano", "podGroup": "sine", "minAvailable": 2, "phase": "Inqueue", "message": "no [x]"}
    text = text_of(*page(make_seen(phase="Running", progress=progress, gang=gang), NOW))
    assert "24%, step 120 of 500, loss 0.25, done about 2026-01-02T01:00:00Z" in text
    assert "Volcano, PodGroup sine of 2 pods, Inqueue: no [x]" in text


def test_a_job_that_nobody_has_seen_is_shown_as_that() -> None:
    assert "not processed by job-controller yet" in text_of(*page(make_seen(), NOW))


CLEARS = "\x1b[2J\x1b]0;mine\x07"
"""Clears a terminal, and names its window."""
CLEARED = r"\x1b[2J\x1b]0;mine\x07"


def test_what_a_status_says_does_not_control_the_terminal() -> None:
    words = {"reason": f"R{CLEARS}", "message": f"M{CLEARS}\n[/x]"}
    condition = {"type": "Running", "status": "False", **words}
    restart = {"time": "2026-01-01T12:00:00Z", **words}
    job = make_seen(
        phase="Failed", **words, conditions=[condition], lastRestart=restart,
        restarts={f"C{CLEARS}": 1}, results={f"N{CLEARS}": 1},
    )  # fmt: skip
    text = text_of(*page(job, NOW), table([job], NOW))
    assert "\x1b" not in text
    assert [text.count(f"{kind}{CLEARED}") for kind in "RMCN"] == [4, 3, 1, 1]
    assert "[/x]" in text


def test_how_a_job_has_ended_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    job_run._print_end(make_seen(phase="Completed", results={CLEARS: 1}), Format.TEXT)
    with pytest.raises(Permanent) as failed:
        job_run._print_end(make_seen(phase="Failed", reason="PodFailed", message=CLEARS), Format.TEXT)
    program._print_error(str(failed.value))
    out, err = capsys.readouterr()
    assert (out, "\x1b" in err) == (f"team-a/sine: Completed; {CLEARED} 1\n", False)
    assert err.endswith(f"PodFailed: {CLEARED}\n")


# Options


def test_a_dry_run_prints_a_manifest_and_needs_no_cluster(paddlewheel: Command) -> None:
    words = (
        "job",
        "run",
        "--image",
        "team/sine:1",
        "--name",
        "sine",
        "--workers",
        "2",
        "-e",
        "A=b=c",
        "--dry-run",
    )
    command = ("python", "train.py", "--name", "x", "-n", "y")
    printed = [paddlewheel(*words, *dashes, *command) for dashes in ((), ("--",))]
    manifests = [yaml.safe_load(done.stdout) for done in printed]
    assert manifests[0] == manifests[1]
    (main,) = manifests[0]["spec"]["worker"]["template"]["spec"]["containers"]
    assert main["command"] == list(command)
    assert {"name": "A", "value": "b=c"} in main["env"]
    assert json.loads(paddlewheel(*words, "-o", "json", *command).stdout) == manifests[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--env", "A"), "Invalid value for --env: 'A' has no value: write NAME=VALUE, as in EPOCHS=3"),
        (("--env", "A=1", "--env", "A=2"), "--env: A is given twice"),
        (("--backoff-limit", "-1"), "--backoff-limit: must be at least 0"),
        (("--data", "set"), "--data: 'set' is not a SampleSet and a mount path; pass SET:/PATH"),
        (("--name", "Sine"), "--name: 'Sine' is not a valid name of an object; pass at most 253 of a-z"),
        (("--namespace", "a/b"), "--namespace: 'a/b' is not a valid name of a namespace"),
        (("--ttl", "soon"), "--ttl: 'soon' is not a duration"),
    ],
)
def test_bad_options_are_refused_by_their_name_before_anything_is_asked(
    paddlewheel: Command, options: tuple[str, ...], said: str
) -> None:
    refused = paddlewheel("job", "run", "--image", "team/sine:1", *options)
    assert refused.exit_code == 2
    assert said in refused.stderr


@pytest.mark.parametrize("word", ["Sine", "a/b/c", "", "a b", "../x"])
def test_a_name_that_no_job_can_have_is_refused_before_anything_is_asked(word: str) -> None:
    with pytest.raises(Permanent, match="InvalidName"):
        Where(namespace="default").key(word)


def test_a_namespace_is_checked_like_a_name() -> None:
    assert checked_namespace("team-a") == "team-a"
    with pytest.raises(Permanent, match=r"'team\.a' is not a valid name of a namespace"):
        checked_namespace("team.a")


def test_a_deletion_is_confirmed_by_an_answer_or_an_option(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    checks: list[str] = []

    class Target:
        namespace, kubeconfig, context = "default", "/config", ""

        @asynccontextmanager
        async def connected(self, *, check: bool = True) -> AsyncIterator[Cluster]:
            if check:
                checks.append("is the API server there?")
            yield cluster

    monkeypatch.setattr(Where, "target", Target())
    asyncio.run(created(cluster))
    refused = paddlewheel("job", "delete", str(SINE))
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    with monkeypatch.context() as patched:
        patched.setattr(output, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
        unanswered = paddlewheel("job", "delete", str(SINE))
    assert unanswered.exit_code == 1
    assert "Delete PaddleJob team-a/sine (not processed yet)? [y/n] (n):" in unanswered.stderr
    assert asyncio.run(cluster.list(PADDLE_JOBS)) != []
    checks.clear()
    done = paddlewheel("job", "delete", str(SINE), "--yes", "--wait", "5", "-o", "json")
    assert len(checks) == 1
    assert json.loads(done.stdout) == {"job": "team-a/sine", "action": "delete", "gone": True}
    assert asyncio.run(cluster.list(PADDLE_JOBS)) == []


@pytest.mark.parametrize(
    "words",
    [("list",), ("show", "x"), ("scale", "x", "--workers", "1"), ("suspend", "x"),
     ("resume", "x"), ("restart", "x"), ("delete", "x", "--yes"), ("run", "--image", "x")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_without_a_cluster_it_is_said_how_to_get_one(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    failed = paddlewheel("job", words[0], "--cluster", "mine", *words[1:])
    assert isinstance(failed.exception, Permanent)
    assert "`paddlewheel cluster up --name mine`" in str(failed.exception)
    missing = paddlewheel("job", words[0], "--context", "prod", *words[1:])
    assert "NoKubeconfig: --context prod" in str(missing.exception)
