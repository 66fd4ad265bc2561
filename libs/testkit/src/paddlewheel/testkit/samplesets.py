"""Builders of SampleSets, SampleJobs and their Secrets, and a scripted runtime that answers over the bus."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunPhase, RunSpec, RunState
from paddlewheel.contracts.run_keys import NodeKey, Record, RunKey, record_pattern
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Retry
from paddlewheel.kube.ports import Object

ENGINE = {
    "name": "vol",
    "storage": "redis",
    "bucket": "redis://redis:6379/1",
    "metaurl": "redis://:pw@redis:6379/0",
    "access-key": "AK",
    "secret-key": "SK",
}
MIB = 1 << 20


def make_sample_set(name: str = "digits", namespace: str = "default", **spec: Any) -> Object:
    """A SampleSet as a user writes it; keywords replace parts of its spec."""
    least = {
        "partitions": 1,
        "source": {"uri": "s3://bucket.s3.example.com/digits"},
        "secretRef": {"name": name},
    }
    return {
        "apiVersion": "batch.paddlepaddle.org/v1alpha1",
        "kind": "SampleSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**least, **spec},
    }


def make_sample_job(
    name: str = "job", namespace: str = "default", *, of: str = "digits", **spec: Any
) -> Object:
    """A SampleJob; without `type` it warms the whole set."""
    return {
        "apiVersion": "batch.paddlepaddle.org/v1alpha1",
        "kind": "SampleJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "warmup", "sampleSetRef": {"name": of}, **spec},
    }


def make_secret(
    name: str = "digits",
    namespace: str = "default",
    *,
    values: Mapping[str, str] = ENGINE,
    kind: str = "Opaque",
) -> Object:
    """A Secret; without `values` that of an engine."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": kind,
        "data": data,
    }


def absent_secret(field: str, key: str) -> str:
    """The message about a Secret that does not exist: an engine's, or else a source's."""
    is_engine = field == "spec.secretRef" and key == "default/digits"
    keys = "access-key and secret-key, or without keys for a public source"
    if is_engine:
        keys = "name, storage, bucket, metaurl, and access-key and secret-key if its store needs them"
    namespace, name = key.split("/")
    command = f"kubectl -n {namespace} create secret generic {name} --from-literal=KEY=VALUE ..."
    return f"{field}: Secret {key} does not exist; create it with the keys {keys}: {command}"


def make_report(set_uid: str, partition: int, at: datetime, **values: Any) -> NodeStatus:
    """Report of a partition's agent: mounted, 10 files of 2 MiB, half of them cached on its node."""
    figures: dict[str, Any] = {
        "node": f"node-{partition}",
        "mounted": True,
        "total_bytes": 20 * MIB,
        "total_files": 10,
        "cached_bytes": 10 * MIB,
        "cached_at": at,
        "cached_age": 1,
        "disk_size": 1000 * MIB,
        "disk_used": 123 * MIB,
        "disk_available": 877 * MIB,
    }
    return NodeStatus(set_uid=set_uid, partition=partition, updated_at=at, **{**figures, **values})


@dataclass
class ScriptedRuntime:
    """Replaces the agents of all sets: starts each run and ends it according to the script.

    Args:
        script: operation -> how it ends; without an entry it succeeds. `RUNNING` leaves it unfinished.
        repeat: seconds after which all reports are written again, as real agents do; 0 = never.
        seen: the records of the started runs, oldest first.
        away: no run is started until `come_back`.
    """

    bus: Bus
    script: Mapping[str, RunPhase] = field(default_factory=dict)
    repeat: float = 0.0
    seen: list[RunSpec] = field(default_factory=list)
    away: bool = False
    _reports: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_runs())
            group.create_task(self._obey_cancels())
            if self.repeat:
                group.create_task(self._report_again())

    def runs(self, operation: str) -> list[RunSpec]:
        """The started runs of one operation."""
        return [spec for spec in self.seen if member_of(spec) == operation]

    async def report(self, set_uid: str, partitions: int, **values: Any) -> None:
        """Every agent writes its NodeStatus."""
        self._reports[set_uid] = (partitions, values)
        for partition in range(partitions):
            await self._report(set_uid, partition, values)

    def fall_silent(self, set_uid: str) -> None:
        """Let the agents of the set stop repeating their reports."""
        self._reports.pop(set_uid, None)

    async def progress(self, spec: RunSpec, **values: Any) -> None:
        """Write the state of a run that goes on."""
        await self._write(spec, RunPhase.RUNNING, **values)

    async def end(self, spec: RunSpec, phase: RunPhase, **values: Any) -> None:
        """Write the reports of a run's nodes again, and then its final state, so that readers of the end have
        current reports."""
        now = datetime.now(UTC)
        _, figures = self._reports.get(spec.set_uid, (0, {}))
        await self.report(spec.set_uid, spec.partitions, **figures)
        await self._write(spec, phase, started_at=now, ended_at=now, **values)

    async def _report_again(self) -> None:
        while True:
            await asyncio.sleep(self.repeat)
            for set_uid in list(self._reports):
                await self._repeat_reports(set_uid)

    async def _repeat_reports(self, set_uid: str) -> None:
        """Repeat the present reports, which a test may change or end meanwhile."""
        partition = 0
        while partition < (found := self._reports.get(set_uid, (0, {})))[0]:
            await self._report(set_uid, partition, found[1])
            partition += 1

    async def _report(self, set_uid: str, partition: int, values: dict[str, Any]) -> None:
        record = make_report(set_uid, partition, datetime.now(UTC), **values)
        await self._put(NODES_BUCKET, str(NodeKey(set_uid, partition)), to_json(record))

    async def _take_runs(self) -> None:
        async for entry in self.bus.key_value(RUNS_BUCKET).watch(record_pattern(Record.SPEC)):
            if entry is not None and entry.value is not None and not self.away:
                await self._take(from_json(RunSpec, entry.value))

    async def come_back(self) -> None:
        """Take what the bus has."""
        self.away = False
        for entry in await self.bus.key_value(RUNS_BUCKET).entries(record_pattern(Record.SPEC)):
            spec = from_json(RunSpec, entry.value or b"{}")
            if spec not in self.seen:
                await self._take(spec)

    async def _take(self, spec: RunSpec) -> None:
        if await self._is_cancelled(spec):
            await self.end(spec, RunPhase.CANCELLED)
            return
        self.seen.append(spec)
        await self._write(spec, RunPhase.RUNNING, started_at=datetime.now(UTC))
        phase = self.script.get(member_of(spec), RunPhase.SUCCEEDED)
        if phase is not RunPhase.RUNNING:
            await self.end(spec, phase)

    async def _is_cancelled(self, spec: RunSpec) -> bool:
        """Such a run ends without having been started."""
        runs = self.bus.key_value(RUNS_BUCKET)
        while True:
            try:
                await runs.get(RunKey(spec.set_uid, spec.run_id).cancel)
            except NotFound:
                return False
            except Retry:
                await asyncio.sleep(0.1)
            else:
                return True

    async def _obey_cancels(self) -> None:
        runs = self.bus.key_value(RUNS_BUCKET)
        async for entry in runs.watch(record_pattern(Record.CANCEL)):
            if entry is None or entry.value is None:
                continue
            spec = next((s for s in self.seen if entry.key == RunKey(s.set_uid, s.run_id).cancel), None)
            if spec is not None:
                await self.end(spec, RunPhase.CANCELLED)

    async def _write(self, spec: RunSpec, phase: RunPhase, **values: Any) -> None:
        is_done = phase is RunPhase.SUCCEEDED
        figures: dict[str, Any] = {
            "files_done": 10 if is_done else 4,
            "files_total": 10,
            "bytes_done": 20 * MIB if is_done else 8 * MIB,
            "bytes_total": 20 * MIB,
            "listed": True,
            "cached_percent": 100.0 if is_done and spec.warmup else 0.0,
            "reason": "FilesFailed" if phase is RunPhase.FAILED else "",
            "message": "the script says so" if phase is RunPhase.FAILED else "",
        }
        state = RunState(
            run_id=spec.run_id,
            phase=phase,
            master="agent-0",
            heartbeat=datetime.now(UTC),
            **{**figures, **values},
        )
        key = RunKey(spec.set_uid, spec.run_id).state
        await self._put(RUNS_BUCKET, key, to_json(state))

    async def _put(self, bucket: str, key: str, value: bytes) -> None:
        """Write without a time limit, as real agents do, because tests kill the bus at any moment."""
        while True:
            try:
                await self.bus.key_value(bucket).put(key, value)
            except Retry:
                await asyncio.sleep(0.1)
            else:
                return
