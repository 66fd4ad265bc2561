"""The composition root: what is watched, read, decided and written, and in which order."""

from __future__ import annotations

from functools import partial

from dataset_controller.apply import Applier, RecordWriter, claim
from dataset_controller.config import Settings
from dataset_controller.domain import names
from dataset_controller.observe import Observer
from dataset_controller.orphans import Orphans
from dataset_controller.pod_lists import PodLists
from dataset_controller.reconciler import SampleJobKind, SampleSetKind
from dataset_controller.records import NodeRecords, RunRecords
from dataset_controller.secret_reads import SecretReads
from dataset_controller.watch import (
    JOB,
    SET,
    Wakes,
    are_being_bound,
    make_watch,
    set_of_jobs,
    sets_of_runtimes,
)
from paddlewheel.bus.streams import DATASETS, NODES_BUCKET, RUNS_BUCKET
from paddlewheel.kube.ports import SECRETS
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.metrics import ControllerMetrics
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.reconciler import Reconciler
from paddlewheel.operator.serve import Host, Operator


def build(settings: Settings, host: Host) -> Operator:
    """The service over given adapters."""
    api, bus, clock = host.api, host.bus, host.clock
    home = settings.pod_namespace
    watch = make_watch(api, settings.namespace, home, clock)
    operator = Operator(names.SERVICE, settings, host, watch=watch)
    metrics, runs, nodes = ControllerMetrics("datasets"), RunRecords(clock), NodeRecords(clock)
    reads = Reads(clock)
    secrets = SecretReads(api, reads, clock, home)
    pods = PodLists(api, clock)
    observer = Observer(watch, runs, nodes, pods, reads, settings.places, secrets, clock, home)
    resources = {kind: store.resource for kind, store in watch.stores.items()} | {names.SECRET: SECRETS}
    executor = Executor(api, resources, {**watch.stores, names.SECRET: secrets}, clock, claim)
    applier = Applier(executor, RecordWriter(bus, CircuitBreaker(clock), clock), secrets, metrics)
    outbox = operator.outbox(DATASETS, metrics.fact)
    set_kind = SampleSetKind(
        observer, applier, Orphans(api, watch, settings.namespace, home), settings.runtime, clock
    )
    job_kind = SampleJobKind(observer, applier, clock)
    set_reconciler = Reconciler(set_kind, operator.outside(SET, outbox))
    sets = operator.control(
        SET, set_reconciler, is_first=are_being_bound(watch), left_behind=partial(sets_of_runtimes, watch)
    )
    jobs = operator.control(JOB, Reconciler(job_kind, operator.outside(JOB, outbox)), set_of_jobs(watch))
    wakes = Wakes(watch, sets.wake, jobs.wake, observer.forget, nodes.forget)
    operator.background(lambda: watch.run(wakes.changed))
    operator.background(lambda: runs.follow(bus.key_value(RUNS_BUCKET), wakes.run_changed))
    operator.background(lambda: nodes.follow(bus.key_value(NODES_BUCKET), wakes.report_changed))
    return operator
