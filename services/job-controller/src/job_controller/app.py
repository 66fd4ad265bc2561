"""The composition root: what is watched, read, decided and written, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from aiohttp import web

from job_controller.config import Settings
from job_controller.core import names
from job_controller.core.progress_access import ProgressAccess
from job_controller.features.progress.endpoint import ProgressEndpoint
from job_controller.features.progress.limit import RateLimit
from job_controller.features.progress.writer import Outlets, ProgressWriter
from job_controller.features.start_gate.endpoint import GateEndpoint
from job_controller.metrics import ProgressMetrics
from job_controller.observe import FOREIGN, JobObserver
from job_controller.reconciler import PaddleJobKind
from job_controller.timing import FACT_GRACE_SECONDS
from job_controller.watch import DATASET_FACTS, GANGS, JOB, Wakes, make_watch, owner_of
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import JOBS, MODELS
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.objects import is_controlled_by
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, SERVICES, WORKLOADS, Object
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.executor import Executor, Refusal
from paddlewheel.operator.metrics import ControllerMetrics
from paddlewheel.operator.outbox import Count
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.reconciler import Reconciler
from paddlewheel.operator.serve import Host, Operator
from paddlewheel.operator.watch import each

RESOURCES = {
    **{resource.kind: resource for resource in (PODS, SERVICES, CONFIG_MAPS)},
    **{kind: resource for kind, resource, _ in GANGS.values()},
    names.WORKLOAD: WORKLOADS,
    names.KEPT_LOGS: CONFIG_MAPS,
}


def build(settings: Settings, host: Host) -> Operator:
    """The service over given adapters."""
    watch = make_watch(host.api, settings.namespace, host.clock, settings.gang_scheduling)
    operator = Operator(names.SERVICE, settings, host, watch=watch, component=names.COMPONENT)
    metrics, access = ControllerMetrics("jobs"), settings.read_progress_access()
    reads, now = Reads(host.clock), host.clock.now()
    options, gangs = replace(settings.options, progress=access), settings.gang_scheduling
    observer = JobObserver(watch, host.api, reads, host.clock, options, gangs, since=now)
    executor = Executor(host.api, RESOURCES, watch.stores, host.clock, claim)
    kind = PaddleJobKind(observer, executor, options, metrics)
    outbox = operator.outbox(JOBS, metrics.fact, {ModelPublished.__name__: MODELS})
    controller = operator.control(JOB, Reconciler(kind, operator.outside(JOB, outbox, names.FINALIZER)))
    wakes = Wakes(watch, controller.wake, host.clock)
    gates = GateEndpoint(watch.of(JOB), watch.of(names.CONFIG_MAP), observer.parsed)
    operator.background(
        lambda: watch.run(each(observer.heard, wakes.changed, gates.changed), wakes.installed)
    )

    async def sample_set_changed(delivery: Delivery) -> None:
        observer.received(delivery)
        await wakes.sample_set_changed(delivery)

    # Every replica needs every fact.
    since = host.clock.now() - timedelta(seconds=FACT_GRACE_SECONDS)
    operator.read(Reading((DATASET_FACTS,), since=since), sample_set_changed)
    routes = [gates.route] if settings.gate_url else []
    if access is not None:
        routes.append(receive_progress(operator, access, settings.progress_period, metrics.fact))
    if routes:
        operator.listen(settings.pods_port, routes)
    return operator


def receive_progress(operator: Operator, access: ProgressAccess, period: float, count: Count) -> web.RouteDef:
    """The endpoint at which training programs report their progress."""
    jobs, clock, metrics = operator.watch.of(JOB), operator.clock, ProgressMetrics()
    outlets = Outlets(operator.api, operator.bus, CircuitBreaker(clock), count)
    writer = ProgressWriter(jobs, outlets, clock, metrics, period)
    operator.background(writer.run)
    return ProgressEndpoint(access, jobs, RateLimit(clock), metrics, writer.offer).route


def claim(kind: str, found: Object, job_uid: str) -> Refusal | None:
    """A child of the same job is taken over, as after a crash; any other object is never touched.

    Raises Retry for the logs of a deleted job of the same name, which are deleted in a moment.
    """
    if is_controlled_by(found, job_uid):
        return None
    former = owner_of(found) if kind == names.KEPT_LOGS else None
    if former is not None and found["metadata"]["name"] == kept_logs_name(former.name):
        raise Retry(Reason.FORMER_JOB_ENDING, "the logs of the deleted job of this name still exist")
    return Refusal(Reason.OWNED_BY_ANOTHER, FOREIGN)
