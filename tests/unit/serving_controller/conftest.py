"""serving-controller under the harness: its own `app.build` over fakes, no sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddlewheel.bus.streams import SERVING
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import (
    EVENTS,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PADDLE_SERVICES,
    Object,
    Resource,
)
from paddlewheel.testkit.harness import Fakes, Harness
from paddlewheel.testkit.operators import OperatorReplica
from paddlewheel.testkit.paddleservices import (
    KnativeServing,
    PlainServing,
    Serving,
    make_endpoint,
    make_service,
)
from serving_controller.app import build
from serving_controller.config import Settings
from serving_controller.domain.judge import Counts

LAC = Key("default", "lac")
KNATIVE = (KNATIVE_SERVICES, KNATIVE_REVISIONS)
DRAIN = 30.0
STEP = 31.0
"""Seconds after which a step may end."""
GOOD = Counts(1000, 0, {0.04: 0, 0.05: 1000, 0.1: 1000})
BAD = Counts(200, 60, {0.04: 0, 0.05: 200, 0.1: 200})


class FakeFigures:
    """Figures that the test sets; without any they cannot be read. `windows` are those asked for."""

    def __init__(self) -> None:
        self.counts: Mapping[str, Counts] | None = None
        self.windows: list[str] = []

    async def read(self, service: Key, revisions: Collection[str], window: str) -> Mapping[str, Counts]:
        self.windows.append(window)
        if self.counts is None:
            raise Retry("NoFigures", "the gateway does not answer")
        return self.counts

    def forget(self, service: Key) -> None:
        return None


DEFAULTS: dict[str, Any] = {"gateway": "gw/main", "replicas_share": False}
SETTINGS = Settings(**DEFAULTS)


class ServingHarness(Harness[OperatorReplica]):
    """One serving-controller. Methods about one service are about `lac`."""

    def __init__(self, fakes: Fakes | None = None, **settings: Any) -> None:
        self.figures = FakeFigures()
        chosen = Settings(**DEFAULTS, **settings) if settings else SETTINGS
        super().__init__(
            lambda fakes, wake_of: OperatorReplica(
                fakes, wake_of, lambda host: build(chosen, host, self.figures), PADDLE_SERVICES
            ),
            SERVING,
            fakes,
        )
        self.serving: Serving = PlainServing(self.cluster, LAC)

    def without_knative(self) -> None:
        """Its API is not there."""
        for resource in KNATIVE:
            self.cluster.uninstall(resource)
        self.serving = PlainServing(self.cluster, LAC)

    def install_knative(self) -> None:
        """Its API is there, and nothing answers; the test goes on with what served before."""
        for resource in KNATIVE:
            self.cluster.install(resource)

    def with_knative(self) -> None:
        """Its API is there."""
        self.install_knative()
        self.serving = KnativeServing(self.cluster, LAC)

    def without_gateway_api(self) -> None:
        self.cluster.uninstall(HTTP_ROUTES)

    async def apply(self, **spec: Any) -> None:
        """As kubectl would, and the controller has dealt with it."""
        await self.cluster.create(PADDLE_SERVICES, make_service(**spec))
        await self.drain_queue()

    async def change(self, **spec: Any) -> None:
        """Patch the spec, and the controller has dealt with it."""
        await self.patch(LAC, {"spec": spec})
        await self.drain_queue()

    async def revised(self, **spec: Any) -> str:
        """Patch the spec, and the engine has made what follows; gives the new revision, not ready yet."""
        await self.change(**spec)
        await self.pending()
        await self.drain_queue()
        return await self.newest()

    async def annotate(self, **annotations: str) -> None:
        group = "elasticserving.paddlepaddle.org"
        named = {f"{group}/{name}": value for name, value in annotations.items()}
        await self.patch(LAC, {"metadata": {"annotations": named}})
        await self.drain_queue()

    async def publish(self, event: Event) -> None:
        await self.bus.publish(event)
        await self.drain_queue()

    async def play(self) -> None:
        """The cluster catches up: every revision is ready, and the gateway knows the route."""
        for revision in await self.pending():
            await self.serving.make_ready(revision)
        await self.route()

    async def pending(self) -> list[str]:
        if isinstance(self.serving, KnativeServing):
            await self.serving.make_revisions()
            return await self.serving.revisions()
        return await self.serving.running()

    async def route(self) -> None:
        await self.serving.route()
        await self.drain_queue()

    async def ready(self, revision: str) -> None:
        """The revision's pods are, and the gateway knows what follows from it."""
        await self.introduced(revision)
        await self.route()

    async def introduced(self, revision: str) -> None:
        """The revision's pods are ready and known to the gateway, but not what follows from it."""
        await self.serving.make_ready(revision)
        await self.drain_queue()
        if isinstance(self.serving, PlainServing):
            await self.route()

    async def look(self, figures: Mapping[str, Counts] | None, seconds: float = STEP) -> None:
        """Time passes, with these figures; the gateway follows."""
        self.figures.counts = figures
        await self.advance(seconds)
        await self.route()

    async def killed_at(self, when: int, doing: Awaitable[None]) -> None:
        """The controller dies before its write of this number, and another takes its place."""
        count = 0

        class Killed(BaseException):
            pass

        def kill(verb: str, resource: Resource, *_: object) -> None:
            nonlocal count
            count += verb != "get" and resource is not EVENTS
            if count == when:
                raise Killed

        try:
            with self.intercepted(kill):
                await doing
        except Killed:
            await self.restart()

    async def served(self, **spec: Any) -> str:
        """A service that answers; gives its stable revision."""
        await self.apply(**spec)
        await self.play()
        return await self.stable()

    @property
    def last(self) -> Any:
        """The newest fact."""
        return self.published[-1].data

    async def stable(self) -> str:
        return str((await self.status(LAC))["default"]["name"])

    async def newest(self) -> str:
        """The revision made last."""
        return str((await self.status(LAC))["revisions"][0]["name"])

    async def revision(self, name: str) -> Object:
        revisions = (await self.status(LAC))["revisions"]
        found: Object = next(r for r in revisions if r["name"] == name)
        return found

    async def reason(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        condition = await self.condition(LAC, type_)
        return condition["status"], condition["reason"]

    async def traffic(self) -> dict[str, int]:
        """Wanted of the gateway."""
        return await self.serving.traffic()


async def to_second_version(harness: ServingHarness, **spec: Any) -> tuple[str, str]:
    """A service whose default was changed: the stable revision, and the new one, which is not ready yet."""
    first = await harness.served(**spec)
    return first, await harness.revised(default=make_endpoint("2"))


async def with_canary(harness: ServingHarness, percent: int | None = None, **spec: Any) -> tuple[str, str]:
    """A service with a canary that is ready: the stable revision, and the canary."""
    stable = await harness.served(**spec)
    canary = await harness.revised(canary=make_endpoint("2"), canaryTrafficPercent=percent)
    await harness.ready(canary)
    return stable, canary


@asynccontextmanager
async def running_on(engine: str, **settings: Any) -> AsyncIterator[ServingHarness]:
    """Kubernetes or Knative."""
    made = ServingHarness(**settings)
    if engine == "Knative":
        made.with_knative()
    else:
        made.without_knative()
    async with made.running() as running:
        yield running


@pytest.fixture(params=["Kubernetes", "Knative"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ServingHarness]:
    """Of each engine."""
    async with running_on(request.param) as running:
        yield running


@pytest.fixture
async def plain() -> AsyncIterator[ServingHarness]:
    """Of Kubernetes' own kinds."""
    async with running_on("Kubernetes") as running:
        yield running


@pytest.fixture
async def knative() -> AsyncIterator[ServingHarness]:
    """Of Knative."""
    async with running_on("Knative") as running:
        yield running
