"""The composition root: connects watches, consumers, the reconciler and the webhook."""

from __future__ import annotations

from functools import partial

from paddlewheel.bus.streams import TRIGGERS
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.serve import Host, Operator
from trigger_controller.apply import Applier, claim
from trigger_controller.catch_up import CatchUp
from trigger_controller.config import Settings
from trigger_controller.domain import names
from trigger_controller.domain.parse import parse_trigger
from trigger_controller.inbox import Inbox
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.observe import TriggerObserver
from trigger_controller.reconciler import TriggerKind, TriggerReconciler
from trigger_controller.watch import CHILDREN, SUBSCRIPTIONS, Wakes, make_watch
from trigger_controller.webhook import Webhook


def build(settings: Settings, host: Host) -> Operator:
    """Build the service from its settings and adapters."""
    watch = make_watch(host.api, settings.namespace, host.clock)
    operator = Operator(names.SERVICE, settings, host, watch=watch)
    metrics = Metrics()
    memory = Memory(host.bus, host.clock, metrics.forgotten)
    inbox = Inbox(lambda key: controller.wake(key), host.clock)
    parse = Memo(partial(parse_trigger, grants=settings.sources))
    observer = TriggerObserver(watch, host.api, memory, inbox, host.clock, parse, metrics)
    executor = Executor(host.api, CHILDREN, watch.stores, host.clock, claim)
    kind = TriggerKind(observer, Applier(executor, memory, metrics), memory, host.clock, metrics)
    outside = operator.outside(names.TRIGGER, operator.outbox(TRIGGERS, metrics.fact), names.FINALIZER)
    controller = operator.control(names.TRIGGER, TriggerReconciler(kind, outside, inbox, memory, parse))
    catch_up = CatchUp(host.api, watch.of(names.TRIGGER), settings.namespace, host.clock)
    wakes = Wakes(watch, controller.wake, inbox, observer.forget, catch_up)
    operator.background(lambda: watch.run(wakes.changed))
    for subscription in SUBSCRIPTIONS:
        operator.consume(subscription, wakes.received)
    if settings.webhook_tokens_dir is not None:
        webhook = Webhook(host.bus, host.clock, metrics, settings.webhook_tokens_dir)
        operator.listen(settings.webhook_port, [webhook.route], settings.webhook_tls_dir)
    return operator
