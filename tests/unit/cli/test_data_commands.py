"""`paddlewheel data` over a cluster in memory: what is created, followed, shown and explained."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.cli.conftest import text_of
from typer.testing import Result

from paddlewheel.cli import data, data_runs
from paddlewheel.cli.advice import DATA_ADVICE
from paddlewheel.cli.data_runs import ending, follow, manifest, rounded_time, runs_of, state
from paddlewheel.cli.data_tables import sample_set as page
from paddlewheel.cli.data_tables import sample_sets as table
from paddlewheel.cli.explain_data import explain_sample_set
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.target import Where
from paddlewheel.contracts.crds.parse import parse_sample_job_status
from paddlewheel.contracts.crds.samplejob import JOB_NAME_LENGTH
from paddlewheel.contracts.objects import key_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Unavailable
from paddlewheel.kube.ports import SAMPLE_JOBS, SAMPLE_SETS, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set
from paddlewheel.testkit.wait import eventually

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROGRESS = {
    "filesDone": 120,
    "filesTotal": 340,
    "filesFailed": 2,
    "bytesDone": 1 << 20,
    "bytesTotal": 4 << 20,
    "percent": "25%",
    "listed": True,
}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is looked at often."""
    monkeypatch.setattr(data_runs, "STATUS_INTERVAL_SECONDS", 0.01)


def test_a_run_has_only_the_options_that_were_given() -> None:
    run = manifest(make_sample_set(), "warmup", {"paths": ["train"], "strategyName": "", "threads": 0})
    assert run["spec"] == {
        "type": "warmup",
        "sampleSetRef": {"name": "digits"},
        "warmupOptions": {"paths": ["train"]},
    }
    assert manifest(make_sample_set(), "clear", {})["spec"].keys() == {"type", "sampleSetRef"}


@pytest.mark.parametrize(
    ("spec", "secret", "expected"),
    [
        ({}, "", {"name": "digits"}),
        (
            {"source": {"uri": "s3://b.s3.example.com/", "secretRef": {"name": "src", "namespace": "keys"}}},
            "",
            {"name": "src", "namespace": "keys"},
        ),
        ({}, "mine", {"name": "mine"}),
    ],
)
def test_a_sync_uses_the_secret_of_the_source(
    spec: dict[str, Any], secret: str, expected: dict[str, str]
) -> None:
    assert manifest(make_sample_set(**spec), "sync", {}, secret=secret)["spec"]["secretRef"] == expected


@pytest.mark.parametrize("name", [*("n" * length for length in range(36, 54)), "n" * 46 + ".n"])
def test_a_generated_name_is_one_that_the_api_server_takes(name: str) -> None:
    made = key_of(manifest(make_sample_set(name), "warmup", {})).name
    assert len(made) <= JOB_NAME_LENGTH
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", made)


def test_a_generated_name_is_always_another() -> None:
    assert len({key_of(manifest(make_sample_set("n" * 60), "warmup", {})).name for _ in range(20)}) == 20


def test_runs_are_those_of_the_set_the_newest_first() -> None:
    runs = [make_sample_job("old"), make_sample_job("other", of="mnist"), make_sample_job("new")]
    for day, run in enumerate(runs, 1):
        run["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    assert [key_of(run).name for run in runs_of(make_sample_set(), runs)] == ["new", "old"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "waiting for dataset-controller"),
        (
            {"phase": "Pending", "reason": "WaitingForSampleSet", "message": "digits is Bound"},
            "Pending, WaitingForSampleSet: digits is Bound",
        ),
        (
            {"phase": "Running", "progress": PROGRESS},
            "Running, 120 of 340 files, 1.0 MiB of 4.0 MiB, 2 failed",
        ),
        (
            {"phase": "Running", "progress": {**PROGRESS, "filesFailed": 0, "etaSeconds": 90}},
            "Running, 120 of 340 files, 1.0 MiB of 4.0 MiB, about 2 min left",
        ),
        (
            {"phase": "Running", "progress": {"filesDone": 1, "filesTotal": 9}},
            "Running, 1 of 9 files so far",
        ),
    ],
)
def test_the_state_of_a_run_is_one_line(status: dict[str, Any], said: str) -> None:
    assert state(parse_sample_job_status({"status": status})) == said


def test_an_estimate_has_few_digits() -> None:
    texts = [rounded_time(seconds) for seconds in (1, 59, 60, 61, 3541, 3600, 3601, 100_000)]
    assert texts == ["1 s", "59 s", "1 min", "2 min", "1 h", "1 h", "1 h 1 min", "27 h 47 min"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Succeeded", "progress": PROGRESS}, "Succeeded: 120 files, 1.0 MiB"),
        ({"phase": "Succeeded", "message": "2 did not exist"}, "Succeeded; 2 did not exist"),
        (
            {
                "phase": "Succeeded",
                "message": "dry run: 5 files",
                "progress": {"filesTotal": 5, "listed": True},
            },
            "Succeeded; dry run: 5 files",
        ),
        ({"phase": "Failed", "reason": "FilesFailed", "message": "a: no"}, "Failed: FilesFailed: a: no"),
    ],
)
def test_the_end_of_a_run_is_one_line(status: dict[str, Any], said: str) -> None:
    assert ending({**make_sample_job(), "status": status}) == said


async def test_a_run_with_a_file_of_unknown_size_left_is_not_complete() -> None:
    cluster, told = MemoryCluster(), []
    run = await cluster.create(SAMPLE_JOBS, make_sample_job())
    following = asyncio.create_task(follow(cluster, run, lambda _, share: told.append(share)))
    progress = {**PROGRESS, "filesDone": 1, "filesTotal": 2, "bytesDone": 9, "bytesTotal": 9}
    await _show(cluster, run, phase="Running", progress=progress)
    await eventually(lambda: told and told[-1] == 0.5)
    await _show(cluster, run, phase="Failed", progress=progress)
    await following


async def test_a_run_is_followed_with_its_share_to_its_end() -> None:
    cluster, told = MemoryCluster(), []
    run = await cluster.create(SAMPLE_JOBS, make_sample_job())
    following = asyncio.create_task(follow(cluster, run, lambda text, share: told.append((text, share))))
    await _show(cluster, run, phase="Running", progress=PROGRESS)
    await eventually(lambda: told and told[-1][1] == 0.25)
    await _show(cluster, run, phase="Succeeded", progress=PROGRESS)
    ended = await following
    assert ended["status"]["phase"] == "Succeeded"
    assert told[-1][0] == "Running, 120 of 340 files, 1.0 MiB of 4.0 MiB, 2 failed"


async def test_an_api_server_that_does_not_answer_is_told_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, told = MemoryCluster(), list[str]()
    run = await cluster.create(SAMPLE_JOBS, make_sample_job())
    await _show(cluster, run, phase="Running", progress=PROGRESS)
    following = asyncio.create_task(follow(cluster, run, lambda text, _: told.append(text)))
    await eventually(lambda: told and told[-1].startswith("Running"))
    running = told[-1]

    def away(*_: object) -> None:
        raise Unavailable("ApiServerUnreachable", "connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "intercept", away)
        said = f"{running}; the API server does not answer: ApiServerUnreachable"
        await eventually(lambda: told[-1] == said)
    await eventually(lambda: told[-1] == running)
    await _show(cluster, run, phase="Succeeded", progress=PROGRESS)
    await following


async def test_a_run_that_is_deleted_or_replaced_ends_the_following() -> None:
    cluster = MemoryCluster()
    run = await cluster.create(SAMPLE_JOBS, make_sample_job())
    following = asyncio.create_task(follow(cluster, run, lambda *_: None))
    await cluster.delete(SAMPLE_JOBS, key_of(run))
    await cluster.create(SAMPLE_JOBS, {**make_sample_job(), "status": {"phase": "Succeeded"}})
    with pytest.raises(Permanent, match="RunDeleted") as gone:
        await following
    assert "was deleted, and how it ended is unknown;" in str(gone.value)
    assert "`paddlewheel events --sample-job default/job --since 1d --no-follow`" in str(gone.value)


async def test_a_run_that_was_seen_on_its_way_out_before_its_end_is_cancelled() -> None:
    cluster, told = MemoryCluster(), list[str]()
    job = make_sample_job()
    run = await cluster.create(SAMPLE_JOBS, {**job, "metadata": {**job["metadata"], "finalizers": ["a/b"]}})
    following = asyncio.create_task(follow(cluster, run, lambda text, _: told.append(text)))
    await eventually(lambda: told)
    await cluster.delete(SAMPLE_JOBS, key_of(run))
    await cluster.patch(SAMPLE_JOBS, key_of(run), {"metadata": {"finalizers": None}})
    with pytest.raises(
        Permanent, match="was deleted while this command followed it, which cancelled the run"
    ):
        await following


async def test_a_run_that_is_deleted_as_it_ends_is_followed_to_its_end() -> None:
    """Its time to live is 0: between two looks it has ended and is gone."""
    cluster, told = MemoryCluster(), list[str]()
    run = await cluster.create(SAMPLE_JOBS, make_sample_job())
    following = asyncio.create_task(follow(cluster, run, lambda text, _: told.append(text)))
    await eventually(lambda: told)
    await _show(cluster, run, phase="Succeeded", progress=PROGRESS)
    await cluster.delete(SAMPLE_JOBS, key_of(run))
    assert ending(await following) == "Succeeded: 120 files, 1.0 MiB"


async def _show(cluster: MemoryCluster, run: Object, **status: Any) -> None:
    await cluster.patch(SAMPLE_JOBS, key_of(run), {"status": status}, subresource="status")


# Shown


def ready(**status: Any) -> Object:
    cache = {
        "totalFiles": "1,797",
        "totalSize": "2.1 MiB",
        "cachedSize": "1.0 MiB",
        "cachedPercent": 48,
        "stagedSize": "3.0 MiB",
        "nodes": [{"partition": 0, "node": "gpu-1", "cachedPercent": 34, "hitRate": "87%"}],
    }
    least = {
        "phase": "Ready",
        "reason": "Ready",
        "cacheStatus": cache,
        "runtimeStatus": {"runtimeReady": "2/2"},
    }
    return {**make_sample_set(), "status": {**least, **status}}


def test_the_table_has_a_row_for_each_set() -> None:
    shown = text_of(table([ready(), make_sample_set("new")], NOW))
    assert all(word in shown for word in ("default/digits", "Ready", "2/2", "1,797", "default/new"))


def test_a_set_is_shown_with_its_nodes_and_runs() -> None:
    run = {**make_sample_job("digits-sync-x"), "status": {"phase": "Running", "progress": PROGRESS}}
    turn = {"phase": "Pending", "reason": "WaitingForTurn", "message": "waits for SampleJob digits-sync-x"}
    waits = {**make_sample_job("digits-clear-y", type="clear", priority=17), "status": turn}
    shown = text_of(*page(ready(), [waits, run], NOW))
    assert all(word in shown for word in ("17", "Pending, WaitingForTurn: waits for SampleJob digits-sync-x"))
    assert all(
        word in shown
        for word in ("gpu-1", "34%", "87%", "48%", "3.0 MiB", "digits-sync-x", "120 of 340 files")
    )


def test_a_set_that_nobody_has_seen_is_shown_as_that() -> None:
    assert "not processed by dataset-controller yet" in text_of(*page(make_sample_set(), [], NOW))


def test_what_a_status_says_does_not_control_the_terminal() -> None:
    bad = "\x1b]0;x\x07[red]"
    run = {**make_sample_job(), "status": {"phase": "Failed", "message": bad}}
    shown = text_of(*page(ready(message=bad), [run], NOW), table([ready(reason=bad)], NOW))
    assert "\x1b]0" not in shown
    assert "[red]" in shown


# Explained


def test_a_set_is_explained_with_meaning_and_remedy() -> None:
    said = explain_sample_set(ready(phase="", reason="SecretNotFound", message="no Secret team/keys"), [])
    assert (said.phase, said.reason) == ("not bound", "SecretNotFound")
    assert "create the Secret" in said.remedy
    assert "does not exist" in said.means


def test_a_set_that_is_ready_is_explained_by_its_failed_run() -> None:
    status = {"phase": "Failed", "reason": "MountLost", "message": "no answer"}
    said = explain_sample_set(ready(), [{**make_sample_job("digits-sync-x"), "status": status}])
    assert said.text().startswith("default/digits-sync-x is Failed: MountLost\n")
    assert said.remedy.endswith("-l paddlepaddle.org/sampleset=default.digits")
    assert said.as_json() == {
        "sampleSet": "default/digits",
        "run": "default/digits-sync-x",
        "phase": "Failed",
        "reason": "MountLost",
        "means": Reason.MOUNT_LOST.meaning,
        "message": "no answer",
        "toDo": said.remedy,
        "pod": "",
        "lines": (),
    }


def false(type_: str, reason: str) -> Object:
    return {"type": type_, "status": "False", "reason": reason, "message": "", "lastTransitionTime": ""}


@pytest.mark.parametrize(
    ("conditions", "meta", "reason"),
    [
        ([false("Ready", "StagedWrites")], {"deletionTimestamp": "2026-01-02T00:00:00Z"}, "StagedWrites"),
        ([false("Ready", "InUse")], {"deletionTimestamp": "2026-01-02T00:00:00Z"}, "InUse"),
        ([], {"deletionTimestamp": "2026-01-02T00:00:00Z"}, "Ready"),
        ([false("Ready", "StagedWrites")], {}, "StagedWrites"),
        ([false("Accepted", "InvalidSpec")], {}, "InvalidSpec"),
    ],
)
def test_a_set_in_phase_ready_that_waits_or_is_refused_is_not_explained_by_its_failed_run(
    conditions: list[Object], meta: dict[str, str], reason: str
) -> None:
    failed = {"phase": "Failed", "reason": "MountLost", "message": "no answer"}
    found = ready(reason=reason, conditions=conditions)
    found["metadata"] |= meta
    said = explain_sample_set(found, [{**make_sample_job("digits-sync-x"), "status": failed}])
    assert (said.key, said.reason) == ("default/digits", reason)


@pytest.mark.parametrize(("reason", "about"), [("PartitionAway", "digits-sync-x"), ("Running", "digits")])
def test_a_set_that_is_ready_is_explained_by_a_run_that_waits(reason: str, about: str) -> None:
    status = {"phase": "Running", "reason": reason, "message": "partition 1: away"}
    said = explain_sample_set(ready(), [{**make_sample_job("digits-sync-x"), "status": status}])
    assert said.key == f"default/{about}"


@pytest.mark.parametrize(
    ("status", "runs", "edited"),
    [({"phase": ""}, [], "sampleset digits"), ({}, [make_sample_job("warm-x")], "samplejob warm-x")],
)
def test_what_is_invalid_is_what_is_edited(status: dict[str, str], runs: list[Object], edited: str) -> None:
    invalid = {"phase": "Pending", "reason": "InvalidSpec", "message": "x"}
    shown = [{**run, "status": invalid} for run in runs]
    said = explain_sample_set(ready(**(status if runs else invalid | status)), shown)
    assert said.remedy.endswith(f"kubectl -n default edit {edited}")


def test_a_set_that_nobody_has_seen_names_the_service() -> None:
    assert "check dataset-controller" in explain_sample_set(make_sample_set(), []).remedy


NEVER_THE_REASON_OF_DATA = {
    *("ACCEPTED", "HEALTHY", "NOT_NEEDED", "SYNCED", "WARMED"),
    *("SUCCESSFUL_CREATE", "SCALED", "RECOVERED", "RECONCILED", "EDITS_IGNORED", "RELEASED_UNREAD"),
    "TTL_EXPIRED",
}
"""Conditions with nothing to do, which explain no state; and words of Events."""
OPERATOR = tuple(
    f"libs/operator/src/paddlewheel/operator/{name}.py" for name in ("executor", "domain/plan", "reconciler")
)


def test_every_reason_that_data_may_show_has_a_remedy() -> None:
    shown = {*named_in("services/dataset-controller/src", *OPERATOR), *ended_in("services/cache-runtime/src")}
    assert {"FAILED_CREATE", "OWNED_BY_ANOTHER", "SOURCE_NOT_ALLOWED", "PATH_NOT_FOUND"} <= shown
    have = {reason.name for reason in DATA_ADVICE}
    assert shown - NEVER_THE_REASON_OF_DATA - have == set()
    assert NEVER_THE_REASON_OF_DATA & have == set()
    assert shown >= NEVER_THE_REASON_OF_DATA


def named_in(*places: str) -> set[str]:
    """Names of the members of Reason that these sources use."""
    return {name for text in sources(*places) for name in re.findall(r"\bReason\.([A-Z_]+)", text)}


def ended_in(place: str) -> set[str]:
    """Names of the reasons that errors and ends of runs have there."""
    words = {word for text in sources(place) for word in re.findall(r'"([A-Z][A-Za-z]+)"', text)}
    return {reason.name for reason in Reason if reason in words}


def sources(*places: str) -> Iterator[str]:
    for place in map(repo_file, places):
        for path in [place, *place.rglob("*.py")]:
            if path.is_file():
                yield path.read_text()


def test_every_remedy_can_be_filled_in() -> None:
    for remedy in DATA_ADVICE.values():
        assert "{" not in remedy.format(
            namespace="team-a", name="digits", key="team-a/digits", object="sampleset digits"
        )


# Commands


@dataclass(frozen=True)
class InMemory:
    """The place where the commands of a test work."""

    api: MemoryCluster

    @asynccontextmanager
    async def connected(self, *, check: bool = True) -> AsyncIterator[MemoryCluster]:
        yield self.api

    def has_set(self) -> None:
        asyncio.run(self._create(SAMPLE_SETS, make_sample_set()))

    def has_run(self, **status: Any) -> None:
        run = make_sample_job("digits-sync-x")
        asyncio.run(self._create(SAMPLE_JOBS, run))
        asyncio.run(_show(self.api, run, **status))

    def runs(self) -> list[Object]:
        return asyncio.run(self._list())

    async def _create(self, resource: Resource, obj: Object) -> None:
        await self.api.create(resource, obj)

    async def _list(self) -> list[Object]:
        return list(await self.api.list(SAMPLE_JOBS))


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    made = InMemory(MemoryCluster())
    monkeypatch.setattr(Where, "target", made)
    # The output of a test has no file descriptor to watch.
    monkeypatch.setattr(data, "while_read", lambda work: work)
    made.has_set()
    return made


def test_a_sync_that_deletes_asks_before(where: InMemory, paddlewheel: Callable[..., Result]) -> None:
    sync = ("data", "sync", "default/digits", "--delete", "--no-follow")
    refused = paddlewheel(*sync)
    assert refused.exit_code == 2
    assert "no terminal to ask for confirmation: add --yes" in refused.stderr
    assert not where.runs()
    assert paddlewheel(*sync, "--yes").exit_code == 0
    assert paddlewheel(*sync, "--dry-run").exit_code == 0
    assert [run["spec"]["syncOptions"]["delete-dst"] for run in where.runs()] == [True, True]


START = {
    "sync": ("sync", "default/digits"),
    "warmup": ("warm", "default/digits"),
    "rmr": ("remove", "default/digits", "old", "--yes"),
    "clear": ("evict", "default/digits"),
}


@pytest.mark.parametrize("operation", START)
@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ((), {}),
        (("--ttl", "0"), {"ttlSecondsAfterFinished": 0}),
        (("--after", "a", "--after", "b"), {"after": ["a", "b"]}),
        (("--priority", "-3"), {"priority": -3}),
    ],
)
def test_every_operation_is_started_on_the_terms_that_are_given(
    where: InMemory,
    paddlewheel: Callable[..., Result],
    operation: str,
    given: tuple[str, ...],
    spec: dict[str, Any],
) -> None:
    done = paddlewheel("data", *START[operation], *given, "--no-follow", "--output", "json")
    assert done.exit_code == 0, done.stderr
    [run] = where.runs()
    own = {"type", "sampleSetRef", "secretRef", f"{operation}Options"}
    assert {name: value for name, value in run["spec"].items() if name not in own} == spec
    assert run["spec"]["type"] == operation
    assert json.loads(done.stdout)["spec"] == run["spec"]


@pytest.mark.parametrize(
    ("given", "options"),
    [((), None), (("--cache", "/ssd/a", "--cache", "/dev/shm"), {"paths": ["/ssd/a", "/dev/shm"]})],
)
def test_what_is_evicted_is_cleared_from_caches_only(
    where: InMemory,
    paddlewheel: Callable[..., Result],
    given: tuple[str, ...],
    options: dict[str, Any] | None,
) -> None:
    assert paddlewheel("data", "evict", "default/digits", *given, "--no-follow").exit_code == 0
    [run] = where.runs()
    assert (run["spec"]["type"], run["spec"].get("clearOptions")) == ("clear", options)
    told = " ".join(paddlewheel("data", "evict", "--help").stdout.split())
    assert "Never deletes data." in told


def test_the_question_names_what_a_sync_deletes_from(
    where: InMemory, paddlewheel: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(data, "confirm", asked.append)
    sync = ("data", "sync", "default/digits", "--no-follow")
    for more in (("--delete",), ("--delete", "--to", "train", "--source", "s3://b.s3.example.com/"), ()):
        assert paddlewheel(*sync, *more, "--secret", "keys").exit_code == 0
    assert asked == [
        "Delete all files of default/digits that are missing in its source, for all users of the set?",
        "Delete all files of default/digits/train that are missing in s3://b.s3.example.com/,"
        " for all users of the set?",
    ]


def test_a_run_that_goes_on_is_cancelled(where: InMemory, paddlewheel: Callable[..., Result]) -> None:
    where.has_run(phase="Running")
    done = paddlewheel("data", "cancel", "default/digits-sync-x")
    assert (done.exit_code, done.stdout) == (0, "default/digits-sync-x is being cancelled and deleted\n")
    assert not where.runs()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_run_that_has_ended_keeps_its_record(
    where: InMemory, paddlewheel: Callable[..., Result], phase: str
) -> None:
    where.has_run(phase=phase, message="as it is")
    refused = paddlewheel("data", "cancel", "default/digits-sync-x")
    assert isinstance(refused.exception, Permanent)
    assert refused.exception.message == (
        f"default/digits-sync-x has ended, nothing was changed ({phase}{';' if phase == 'Succeeded' else ':'}"
        " as it is); to delete its record: kubectl -n default delete samplejob digits-sync-x"
    )
    assert refused.stdout == ""
    assert len(where.runs()) == 1


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_name_of_a_run_is_told_before_its_end(
    where: InMemory,
    paddlewheel: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
) -> None:
    async def interrupted(*_: object) -> Object:
        raise Permanent("RunDeleted", "as one that is interrupted")

    monkeypatch.setattr(data, "follow", interrupted)
    ended = paddlewheel("data", "evict", "default/digits", "-o", output)
    [run] = where.runs()
    assert ended.stderr.startswith(f"{key_of(run)} created; Ctrl-C ends this command, not the run\n")
    assert ended.stdout == ""
