"""The stages that follow the objects: synced, warmed, trained, model fetched, facts counted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import orjson

from paddlewheel.cli import tools
from paddlewheel.cli.demo.digits import JOB, NAMESPACE, SAMPLE_SET, SERVICE
from paddlewheel.cli.demo.model import Run
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.dataset_names import runtime_name
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.contracts.generated.datasets_v1 import (
    SampleSetReady,
    SampleSetSynced,
    SampleSetSyncFailed,
    SampleSetWarmed,
)
from paddlewheel.contracts.generated.jobs_v1 import JobFailed, JobRunning, JobSucceeded
from paddlewheel.core.tasks import end

STAGE_TIMEOUT_SECONDS = 600.0
_LAST_FACTS_TIMEOUT_SECONDS = 10.0
"""Time for the last published facts to arrive."""
_REQUESTS = re.compile(r"^paddlewheel_kube_requests_total\{(.*)\} (\S+)")
_WRITE_VERBS = ("create", "patch", "patch-status", "delete")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


async def await_synced(run: Run) -> None:
    """Wait until the source of the data set has been copied."""
    drawing = asyncio.create_task(_draw_progress(run, "sync"))
    try:
        fact = await run.facts.expect(
            SampleSetSynced,
            lambda f: _of_set(run, f),
            within=STAGE_TIMEOUT_SECONDS,
            unless=lambda: _sync_failure(run),
        )
    finally:
        await end(drawing)
    run.outcome.files_synced, run.outcome.bytes_synced = fact.files, fact.bytes


async def await_warmed(run: Run) -> None:
    """Wait until the data set is warmed and ready for jobs."""
    drawing = asyncio.create_task(_draw_progress(run, "warmup"))
    try:
        fact = await run.facts.expect(
            SampleSetWarmed, lambda f: _of_set(run, f), within=STAGE_TIMEOUT_SECONDS, unless=lambda: None
        )
        await run.facts.expect(
            SampleSetReady, lambda f: _of_set(run, f), within=STAGE_TIMEOUT_SECONDS, unless=lambda: None
        )
    finally:
        await end(drawing)
    outcome = run.outcome
    outcome.files_warmed, outcome.bytes_warmed, outcome.cached_percent = (
        fact.files,
        fact.bytes,
        fact.cached_percent,
    )


async def await_trained(run: Run) -> None:
    """Wait until the job has succeeded; epochs are read from the first worker's log."""
    run.view.progress("waiting for both workers", 0.0)
    await run.facts.expect(
        JobRunning, lambda f: _of_job(run, f), within=STAGE_TIMEOUT_SECONDS, unless=lambda: _job_failure(run)
    )
    drawing = asyncio.create_task(_draw_epochs(run))
    try:
        fact = await run.facts.expect(
            JobSucceeded,
            lambda f: _of_job(run, f),
            within=STAGE_TIMEOUT_SECONDS,
            unless=lambda: _job_failure(run),
        )
    finally:
        await end(drawing)
    run.outcome.results = dict(fact.results)


def _of_set(run: Run, fact: SampleSetSynced | SampleSetWarmed | SampleSetReady | SampleSetSyncFailed) -> bool:
    return fact.sample_set is not None and fact.sample_set.uid == run.applied.sample_set_uid


def _of_job(run: Run, fact: JobRunning | JobSucceeded | JobFailed) -> bool:
    return fact.job is not None and fact.job.uid == run.applied.job_uid


def _sync_failure(run: Run) -> str | None:
    fact = run.facts.find(SampleSetSyncFailed, lambda f: _of_set(run, f))
    return f"the sync failed: {fact.reason}: {fact.message}" if fact else None


def _job_failure(run: Run) -> str | None:
    fact = run.facts.find(JobFailed, lambda f: _of_job(run, f))
    return f"the training failed: {fact.reason}: {fact.message}" if fact else None


async def _draw_progress(run: Run, operation: str) -> None:
    while True:
        fact = run.facts.find(
            RunProgressed, lambda f: f.set_uid == run.applied.sample_set_uid and f.operation == operation
        )
        if fact and fact.files_total:
            text = f"{fact.files_done:,} of {fact.files_total:,} files, {fact.bytes_done:,} bytes"
            run.view.progress(text, fact.files_done / fact.files_total)
        await asyncio.sleep(0.5)


async def _draw_epochs(run: Run) -> None:
    process = await run.tools.start(
        "kubectl", "-n", NAMESPACE, "logs", "-f", f"{JOB}-worker-0", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout
        async for line in process.stdout:
            _take_epoch(run, line)
    finally:
        await tools.end(process)


def _take_epoch(run: Run, line: bytes) -> None:
    word, _, rest = line.partition(b" ")
    if word != b"progress":
        return
    epoch = orjson.loads(rest)
    run.outcome.epochs.append(epoch)
    text = "epoch {epoch} of {epochs}, loss {loss:.4f}, accuracy {accuracy:.3f}"
    run.view.progress(text.format(**epoch), epoch["epoch"] / epoch["epochs"])


async def fetch_model(run: Run) -> str:
    """Copy the model out of the data set through a runtime pod; return its folder, or ""."""
    run.options.model_out.mkdir(parents=True, exist_ok=True)
    pod = f"{runtime_name(NAMESPACE, SAMPLE_SET, SYSTEM_NAMESPACE)}-0"
    model = f"/var/lib/paddlewheel/mnt/{run.applied.sample_set_uid}/view/data/models/digits"
    source = f"{SYSTEM_NAMESPACE}/{pod}:{model}"
    await run.tools.run("kubectl", "cp", source, str(run.options.model_out))
    files = [path for path in run.options.model_out.rglob("*") if path.is_file()]
    return str(run.options.model_out) if files else ""


async def count_facts(run: Run) -> None:
    """Facts on the bus since the run began, and how many of them this run received and showed."""
    outcome = run.outcome
    counts = await run.facts.compare(await _announced(run), within=_LAST_FACTS_TIMEOUT_SECONDS)
    outcome.facts_published, outcome.facts_received = counts


async def _announced(run: Run) -> set[str]:
    """Ids of the facts in the status of the objects: each must be on the bus."""
    ids = set()
    served = (("paddleservice", SERVICE),) if run.options.serves else ()
    for kind, name in (("sampleset", SAMPLE_SET), ("paddlejob", JOB), *served):
        found = orjson.loads(await run.tools.run("kubectl", "get", kind, name, "-n", NAMESPACE, "-o", "json"))
        for fact in found["status"].get("announcements", []):
            ids.add(f"{found['metadata']['uid']}/{fact['fact']}/{fact.get('attempt', 0)}")
    return ids


async def count_writes(tools: Tools) -> Counter[str]:
    """API writes of job-controller since it started, by verb and resource, from its own metrics."""
    pods = await tools.run(
        "kubectl", "-n", SYSTEM_NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/name=job-controller",
        "-o", "jsonpath={.items[*].metadata.name}",
    )  # fmt: skip
    counts: Counter[str] = Counter()
    for pod in pods.split():
        path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/{pod}:8080/proxy/metrics"
        counts += _writes_in(await tools.run("kubectl", "get", "--raw", path))
    return counts


def _writes_in(metrics: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in metrics.splitlines():
        found = _REQUESTS.match(line)
        labels = dict(_LABEL.findall(found.group(1))) if found else {}
        if found and labels["verb"] in _WRITE_VERBS and labels["status"].startswith("2"):
            counts[f"{labels['verb']} {labels['resource']}"] += int(float(found.group(2)))
    return counts
