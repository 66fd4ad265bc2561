"""Reads only: caches and the gateway's figures, gathered into what a plan is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from paddlewheel.contracts.crds.paddleservice import RolloutStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from paddlewheel.kube.objects import id_of, key_of, uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.watch import Watch
from serving_controller.domain import names
from serving_controller.domain.model import Children, Observed, Raw, Service, parse_service
from serving_controller.domain.revision import followed_by
from serving_controller.domain.rollout import OPEN, STEPPING
from serving_controller.measurements import Measurements
from serving_controller.models import Models
from serving_controller.ports import Figures
from serving_controller.watch import BY_OWNER, BY_SERVICE, CHILDREN, OPTIONAL, PADDLE_SERVICE


class Observer:
    """Gathers what is known about one service."""

    def __init__(
        self, watch: Watch, figures: Figures, models: Models, measurements: Measurements, clock: Clock
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._models = models
        self._measurements = measurements
        self._figures = figures
        self._parse: Memo[Service] = Memo(parse_service)
        self._looks: dict[Key, tuple[str, datetime]] = {}

    async def observe(self, key: Key) -> Observed | None:
        """Everything about one service, None when it is gone. Raises Permanent for what cannot be parsed."""
        obj = self._watch.of(PADDLE_SERVICE).get(key)
        if obj is None:
            return None
        own = self._parse(obj)
        pods = tuple(self._watch.of(names.POD).by_index(BY_SERVICE, str(key)))
        installed = frozenset(kind for kind in OPTIONAL if self._watch.of(kind).installed)
        published = self._models.of(key.namespace, followed_by(own.spec))
        seen = Observed(
            own,
            self._children(own),
            pods,
            installed,
            published,
            measured=self._measurements.of(own.uid),
            looks_since=self._looks_since(key, own.status.rollout),
        )
        return await self._with_figures(seen)

    def forget(self, obj: Object) -> None:
        """A service is gone."""
        self._parse.forget(obj)
        self._measurements.forget(uid_of(obj))
        self._looks.pop(key_of(obj), None)

    def _looks_since(self, key: Key, rollout: RolloutStatus | None) -> datetime | None:
        if rollout is None or rollout.phase not in OPEN:
            self._looks.pop(key, None)
            return None
        known = self._looks.get(key)
        if known is None or known[0] != _step(rollout):
            known = self._looks[key] = (_step(rollout), self._clock.now())
        return known[1]

    def _children(self, own: Service) -> Children:
        return {kind: self._of_kind(kind, own) for kind in (*CHILDREN, names.SLICE)}

    def _of_kind(self, kind: str, own: Service) -> Mapping[str, Raw]:
        """Knative's revisions and the endpoints of Services are controlled by others, and carry the label of
        the service."""
        is_others = kind in (names.KNATIVE_REVISION, names.SLICE)
        index, value = (BY_SERVICE, str(own.key)) if is_others else (BY_OWNER, id_of(own.obj))
        return {str(obj["metadata"]["name"]): obj for obj in self._watch.of(kind).by_index(index, value)}

    async def _with_figures(self, seen: Observed) -> Observed:
        rollout = seen.status.rollout
        if rollout is None or rollout.phase != STEPPING:
            self._figures.forget(seen.own.key)
            return seen
        revisions = (seen.status.stable, rollout.candidate)
        try:
            counts = await self._figures.read(seen.own.key, revisions, _step(rollout))
        except Retry as error:
            return replace(seen, figures_trouble=error.message or error.reason)
        return replace(seen, figures=counts)


def _step(rollout: RolloutStatus) -> str:
    """Name of the step under way."""
    return f"{rollout.candidate}/{rollout.step}"
