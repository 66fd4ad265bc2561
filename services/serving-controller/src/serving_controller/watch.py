"""What this service watches, and which PaddleService each change wakes. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import labels_of
from paddlewheel.core.clock import Clock
from paddlewheel.kube.indexed import Index
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_id, key_of, uid_of
from paddlewheel.kube.ports import (
    AUTOSCALERS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PADDLE_SERVICES,
    PODS,
    SERVICES,
    Change,
    Object,
    Watches,
)
from paddlewheel.operator.watch import Watch
from serving_controller.domain import names
from serving_controller.domain.revision import followed_models
from serving_controller.timing import POD_CHANGE_BATCH_INTERVAL_SECONDS

PADDLE_SERVICE = PADDLE_SERVICES.kind
CHILDREN = {
    names.RECORD: CONTROLLER_REVISIONS,
    names.DEPLOYMENT: DEPLOYMENTS,
    names.SERVICE_KIND: SERVICES,
    names.AUTOSCALER: AUTOSCALERS,
    names.ROUTE: HTTP_ROUTES,
    names.KNATIVE_SERVICE: KNATIVE_SERVICES,
    names.KNATIVE_REVISION: KNATIVE_REVISIONS,
}
"""Everything that serves, by the keys of `names`."""
OPTIONAL = (names.ROUTE, names.KNATIVE_SERVICE, names.KNATIVE_REVISION)
"""Their CRDs may come and go."""
BY_OWNER, BY_SERVICE, BY_MODEL, BY_UID = "owner", "service", "model", "uid"


Wake = Callable[[Key, float], None]


def make_watch(watches: Watches, namespace: str, clock: Clock) -> Watch:
    """Informers of services and of what serves them. `namespace` "" means all."""
    indexes: dict[str, Index] = {BY_MODEL: _models_of, BY_UID: lambda obj: [uid_of(obj)]}
    services = Informer(watches, PADDLE_SERVICES, namespace, clock=clock, indexes=indexes)
    others = {
        kind: Informer(
            watches,
            resource,
            namespace,
            clock=clock,
            label_selector=names.LABEL_SERVICE,
            indexes={BY_OWNER: controller_id, BY_SERVICE: _service_of},
            optional=kind in OPTIONAL,
        )
        for kind, resource in {**CHILDREN, names.POD: PODS, names.SLICE: ENDPOINT_SLICES}.items()
    }
    return Watch({PADDLE_SERVICE: services, **others})


def service_with(uid: str, watch: Watch) -> Key | None:
    """Namespace and name of the PaddleService, None when there is none."""
    found = watch.of(PADDLE_SERVICE).by_index(BY_UID, uid)
    return key_of(found[0]) if found else None


class Wakes:
    """Knows which service a change is about."""

    def __init__(self, watch: Watch, wake: Wake, forget: Callable[[Object], None]) -> None:
        self._watch = watch
        self._wake = wake
        self._forget = forget

    def changed(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        if change.type == "DELETED" and kind == PADDLE_SERVICE:
            self._forget(change.obj)
        if self._watch.of(kind).is_own(change):
            return
        if kind == PADDLE_SERVICE:
            self._wake(key_of(change.obj), 0.0)
        elif name := labels_of(change.obj).get(names.LABEL_SERVICE):
            delay = POD_CHANGE_BATCH_INTERVAL_SECONDS if kind == names.POD else 0.0
            self._wake(Key(key_of(change.obj).namespace, name), delay)

    def installed(self, kind: str, _: bool) -> None:
        """An engine has come or gone: it concerns every service."""
        if kind in OPTIONAL:
            for service in self._watch.of(PADDLE_SERVICE).list():
                self._wake(key_of(service), 0.0)

    def published(self, model: Key) -> None:
        """A model was published."""
        for service in self._watch.of(PADDLE_SERVICE).by_index(BY_MODEL, str(model)):
            self._wake(key_of(service), 0.0)

    def measured(self, service: Key) -> None:
        """Somebody has measured one of its revisions."""
        self._wake(service, 0.0)


def _service_of(obj: Object) -> list[str]:
    return [str(Key(key_of(obj).namespace, labels_of(obj).get(names.LABEL_SERVICE, "")))]


def _models_of(obj: Object) -> list[str]:
    namespace = key_of(obj).namespace
    return [str(Key(namespace, name)) for name in followed_models(obj)]
