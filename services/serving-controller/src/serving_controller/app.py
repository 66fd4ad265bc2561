"""The composition root: what is watched, read, decided and written, and in which order."""

from __future__ import annotations

from dataclasses import replace

from paddlewheel.bus.streams import SERVING
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.reconciler import Reconciler
from paddlewheel.operator.serve import Host, Operator
from serving_controller.config import Settings
from serving_controller.domain import names
from serving_controller.figures import GatewayFigures
from serving_controller.measurements import MEASUREMENTS, Measurements
from serving_controller.metrics import Metrics
from serving_controller.models import MODELS, Models
from serving_controller.observe import Observer
from serving_controller.ports import Figures
from serving_controller.reconciler import PaddleServiceKind
from serving_controller.watch import CHILDREN, PADDLE_SERVICE, Wakes, make_watch, service_with


def build(settings: Settings, host: Host, figures: Figures | None = None) -> Operator:
    """The service over given adapters; `figures` None reads those of the gateway."""
    watch, metrics = make_watch(host.api, settings.namespace, host.clock), Metrics()
    operator = Operator(names.SERVICE, settings, host, watch=watch)
    if figures is None:
        figures = gateway = GatewayFigures(settings.endpoints, host.clock)
        operator.background(gateway.run)
    models = Models(lambda model: wakes.published(model))
    measurements = Measurements(lambda uid: service_with(uid, watch), lambda key: wakes.measured(key))
    observer = Observer(watch, figures, models, measurements, host.clock)
    executor = Executor(host.api, CHILDREN, watch.stores, host.clock)
    kind = PaddleServiceKind(observer, executor, figures, settings.options, metrics)
    outside = operator.outside(PADDLE_SERVICE, operator.outbox(SERVING, metrics.fact), names.FINALIZER)
    controller = operator.control(PADDLE_SERVICE, Reconciler(kind, outside))
    wakes = Wakes(watch, controller.wake, observer.forget)
    operator.background(lambda: watch.run(wakes.changed, wakes.installed))
    operator.read(replace(MODELS, caught_up=models.caught_up), models.published)
    operator.read(replace(MEASUREMENTS, caught_up=measurements.caught_up), measurements.published)
    return operator
