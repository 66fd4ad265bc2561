"""Tables of `paddlewheel data`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from paddlewheel.cli.data_runs import state
from paddlewheel.cli.objects import age_of, conditions
from paddlewheel.cli.table import Table, properties
from paddlewheel.contracts.crds import SampleSetSpec, SampleSetStatus
from paddlewheel.contracts.crds.parse import (
    parse_sample_job_status,
    parse_sample_set_spec,
    parse_sample_set_status,
)
from paddlewheel.contracts.crds.sampleset import CacheStatus
from paddlewheel.contracts.objects import key_of, spec_of
from paddlewheel.kube.ports import Object

_RUNS = 10
"""Number of runs that are shown."""


def sample_sets(found: Sequence[Object], now: datetime) -> Table:
    """A row for each data set."""
    table = Table(
        ("data set", "phase", "partitions", "files", "size", "cached", "reason", "age"),
        drops=("age", "files", "partitions", "cached", "size", "reason"),
        states={"phase"},
        right={"files", "size", "cached"},
    )
    for each in found:
        status = parse_sample_set_status(each)
        cache, runtime = status.cache_status, status.runtime_status
        table.add_row(
            str(key_of(each)), status.phase, runtime.runtime_ready if runtime else "",
            *(_figures(cache) if cache else ("", "", "")), status.reason, age_of(each, now),
        )  # fmt: skip
    return table


def _figures(cache: CacheStatus) -> tuple[str, str, str]:
    return cache.total_files, cache.total_size, cache.cached_size


def sample_set(found: Object, runs: Sequence[Object], now: datetime) -> Iterator[Table]:
    """Everything about one data set, and its newest runs."""
    spec, status = parse_sample_set_spec(found), parse_sample_set_status(found)
    yield properties(str(key_of(found)), _about(found, spec, status, now), states={"phase"})
    yield conditions(status.conditions)
    if status.cache_status and status.cache_status.nodes:
        yield _nodes(status.cache_status)
    if runs:
        yield sample_jobs(runs[:_RUNS], now)


def _about(found: Object, spec: SampleSetSpec, status: SampleSetStatus, now: datetime) -> dict[str, str]:
    cache, runtime = status.cache_status or CacheStatus(), status.runtime_status
    return {
        "phase": status.phase or "not processed by dataset-controller yet",
        "reason": status.reason,
        "message": status.message,
        "source": spec.source.uri if spec.source else "",
        "partitions ready": runtime.runtime_ready if runtime else "",
        "files": cache.total_files,
        "size": cache.total_size,
        "cached on the nodes": f"{cache.cached_size} ({cache.cached_percent}%)" if cache.cached_size else "",
        "room in the caches": cache.cache_capacity,
        "not uploaded yet": "" if cache.staged_size in ("", "0 B") else cache.staged_size,
        "cache disks": f"{cache.disk_used} of {cache.disk_size} used" if cache.disk_size else "",
        "errors": cache.error_massage,
        "age": age_of(found, now),
    }


def _nodes(cache: CacheStatus) -> Table:
    table = Table(
        ("node", "partition", "mounted", "cached of its share", "cached", "room", "not uploaded", "hits"),
        drops=("hits", "not uploaded", "room", "cached", "partition"),
        states={"mounted"},
        right={"partition", "cached of its share", "cached", "room", "not uploaded", "hits"},
    )
    for node in cache.nodes:
        table.add_row(
            node.node, str(node.partition), "yes" if node.mounted else "no", f"{node.cached_percent}%",
            node.cached_size, node.cache_capacity, node.staged_size, node.hit_rate,
        )  # fmt: skip
    return table


def sample_jobs(runs: Sequence[Object], now: datetime) -> Table:
    """A row for each run."""
    table = Table(
        ("run", "operation", "priority", "state", "age"),
        wraps={"state"},
        drops=("priority", "age", "operation"),
        states={"state"},
    )
    for run in runs:
        said, spec = state(parse_sample_job_status(run)), spec_of(run)
        priority = str(spec.get("priority") or "")
        table.add_row(key_of(run).name, str(spec.get("type", "")), priority, said, age_of(run, now))
    return table
