"""Carrying out a plan: children in Kubernetes, then records on the bus, which may be unreachable."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import structlog

from dataset_controller.domain.actions import (
    BUS,
    RECORD,
    CancelRun,
    ForgetRun,
    ForgetSet,
    RecordAction,
    WriteRun,
)
from dataset_controller.domain.names import SECRET
from dataset_controller.domain.sampleset.policies.ownership import foreign, is_ours
from dataset_controller.secret_reads import FORBIDDEN, SecretReads
from dataset_controller.timing import RECORD_CHECK_INTERVAL_SECONDS, RECORD_RETRY_INTERVAL_SECONDS
from paddlewheel.bus.ports import Bus, Entry, KeyValue
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import Record, RunKey, parse_run_record, set_pattern
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, NotFound, Permanent, Retry, Unavailable
from paddlewheel.kube.ports import Object
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.domain.plan import Action, Applied, Trouble, Verb, earliest
from paddlewheel.operator.executor import Executor, Refusal
from paddlewheel.operator.failures import Failures, Owner
from paddlewheel.operator.metrics import ControllerMetrics

log = structlog.get_logger(__name__)

SIZE_REASONS = ("TooLarge", "NotStorable")
"""The bus's reasons for what is larger than it takes."""
SIZE_REMEDY = "shorten the options of the run, e.g. name fewer paths, or raise max_payload of the NATS server"


def claim(kind: str, found: Object, set_uid: str) -> Refusal | None:
    """The set's own child from before a crash is accepted; another's is never touched."""
    if is_ours(found, set_uid):
        return None
    problem = foreign(kind, found)
    return Refusal(problem.reason, problem.message)


class Applier:
    """Carries out the actions of both kinds."""

    def __init__(
        self, executor: Executor, records: RecordWriter, secrets: SecretReads, metrics: ControllerMetrics
    ) -> None:
        self._executor = executor
        self._records = records
        self._secrets = secrets
        self._metrics = metrics

    async def apply(self, owner: Owner, actions: Sequence[Any]) -> Applied:
        """Try everything that is due; never raises for a child or a record."""
        children = [action for action in actions if isinstance(action, Action)]
        for action in children:
            if action.kind == SECRET:
                self._secrets.forget(action.key)
        applied = await self._executor.apply(owner, children)
        for trouble in applied.troubles:
            if trouble.reason == FORBIDDEN:
                self._secrets.forget_namespace(trouble.key.namespace)
        self._metrics.created(applied.created)
        records = await self._records.apply(owner, [a for a in actions if isinstance(a, RecordAction)])
        return Applied(
            applied.created,
            (*applied.troubles, *records.troubles),
            earliest(applied.retry_after, records.retry_after),
            applied.children,
        )

    def forget(self, owner_uid: str) -> None:
        """The owner is gone."""
        self._executor.forget(owner_uid)
        self._records.forget(owner_uid)


class RecordWriter:
    """Writes and removes the service's records on the bus.

    Args:
        breaker: not the outbox's: trouble with buckets must not stop facts.
    """

    def __init__(self, bus: Bus, breaker: CircuitBreaker, clock: Clock) -> None:
        self._runs, self._nodes = bus.key_value(RUNS_BUCKET), bus.key_value(NODES_BUCKET)
        self._work = bus.work
        self._breaker = breaker
        self._clock = clock
        self._refusals: Failures[str] = Failures(clock)
        self._sure: dict[RunKey, float] = {}

    async def apply(self, owner: Owner, actions: Sequence[RecordAction]) -> Applied:
        """Until the bus is unreachable; what is left is planned again. A record that the bus refuses keeps no
        other from being tried, and backs off by itself; but a cancel that is not taken holds back the runs:
        none begins beside one that it is to end."""
        self._refusals.retain(owner.uid, map(_record, actions))
        silence: tuple[Trouble, ...] = ()
        requested = frozenset(_key(action.run) for action in actions if isinstance(action, WriteRun))
        is_held = False
        for action in actions:
            if is_held and isinstance(action, WriteRun):
                continue
            try:
                is_done = await self._try(owner, action, requested)
            except Unavailable as error:
                log.info("records wait for the bus", error=str(error))
                silence = (_trouble(BUS, action, error),)
                break
            is_held |= isinstance(action, CancelRun) and not is_done
        retry_after = RECORD_RETRY_INTERVAL_SECONDS if silence else self._refusals.retry_after(owner.uid)
        return Applied(troubles=(*self._refusals.of(owner.uid), *silence), retry_after=retry_after)

    def forget(self, owner_uid: str) -> None:
        """The owner is gone."""
        self._refusals.retain(owner_uid, ())

    async def _try(self, owner: Owner, action: RecordAction, requested: Set[RunKey]) -> bool:
        """Carry out what was not refused a moment ago, and say whether the bus has taken it. An answer is a
        refusal, also one that may pass, as of a bucket that is full. Raises Unavailable."""
        record, clock = _record(action), self._clock
        if self._refusals.waiting(owner, record, clock.monotonic()):
            return False
        try:
            await self._perform(action, requested)
        except Unavailable:
            raise
        except (Retry, Permanent) as error:
            log.error("the bus refuses a record", record=record, error=str(error))
            self._refusals.hold(owner, record, _trouble(RECORD, action, error), clock.monotonic())
            return False
        self._refusals.release(owner.uid, record)
        return True

    async def _perform(self, action: RecordAction, requested: Set[RunKey]) -> None:
        match action:
            case WriteRun(run):
                await self._write_run(run)
            case CancelRun(run):
                await self._cancel(run, is_requested=run in requested)
            case ForgetRun(run):
                self._sure.pop(run, None)
                await self._remove(run.pattern)
                await self._breaker.call(self._work.purge(work_filter(run.set_uid, run.run_id)))
            case ForgetSet(set_uid):
                await self._remove(set_pattern(set_uid))
                await self._remove_all(self._nodes, set_pattern(set_uid))
                await self._breaker.call(self._work.purge(work_filter(set_uid)))

    async def _write_run(self, spec: RunSpec) -> None:
        """Once; one that the bus has lost is written again."""
        now, run = self._clock.monotonic(), _key(spec)
        if now < self._sure.get(run, float("-inf")):
            return
        await self._create(run.spec, to_json(spec))
        self._sure = {key: until for key, until in self._sure.items() if until > now}
        self._sure[run] = now + RECORD_CHECK_INTERVAL_SECONDS

    async def _cancel(self, run: RunKey, *, is_requested: bool) -> None:
        """Unless nobody asks for it: agents work on no such run, and its cancel would stay for ever.

        Args:
            is_requested: its record is written next.
        """
        if is_requested or await self._has_spec(run):
            await self._create(run.cancel, b"{}")

    async def _has_spec(self, run: RunKey) -> bool:
        try:
            await self._breaker.call(self._runs.get(run.spec))
        except NotFound:
            return False
        return True

    async def _create(self, key: str, record: bytes) -> None:
        try:
            await self._breaker.call(self._runs.create(key, record))
        except AlreadyExists:
            return

    async def _remove(self, pattern: str) -> None:
        """The spec goes first: without it no agent starts the run again."""
        await self._remove_all(self._runs, pattern)

    async def _remove_all(self, bucket: KeyValue, pattern: str) -> None:
        entries = await self._breaker.call(bucket.entries(pattern))
        for entry in sorted(entries, key=_is_not_spec):
            try:
                await self._breaker.call(bucket.delete(entry.key))
            except Permanent as error:
                # Agents may write keys that nobody reads, and that must not keep a set or a run from ending.
                log.warning("foreign key left in the bucket", key=entry.key, error=str(error))


def _is_not_spec(entry: Entry) -> bool:
    record = parse_run_record(entry.key)
    return record is None or record.record is not Record.SPEC


def _key(spec: RunSpec) -> RunKey:
    return RunKey(spec.set_uid, spec.run_id)


def _record(action: RecordAction) -> str:
    """Key or pattern in the bucket."""
    match action:
        case WriteRun(spec):
            return _key(spec).spec
        case CancelRun(run):
            return run.cancel
        case ForgetRun(run):
            return run.pattern
        case ForgetSet(set_uid):
            return set_pattern(set_uid)


def _trouble(kind: str, action: RecordAction, error: Retry | Permanent) -> Trouble:
    verb: Verb = "create" if isinstance(action, WriteRun | CancelRun) else "delete"
    return Trouble(verb, kind, Key("", _record(action)), error.reason, _with_remedy(error))


def _with_remedy(error: Retry | Permanent) -> str:
    message = error.message or error.reason
    return f"{message}; {SIZE_REMEDY}" if error.reason in SIZE_REASONS else message
