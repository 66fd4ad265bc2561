"""What this service needs of the outside besides its watched view: writes, one rare read, and the bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from paddlewheel.bus.ports import KeyValue
from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.operator.outbox import FactSource, Republished


class DataCluster(Protocol):
    """Writes, and reads too rare to be watched."""

    async def get(self, resource: Resource, key: Key) -> Object: ...

    async def list(self, resource: Resource, namespace: str = "") -> list[Object]: ...

    async def create(self, resource: Resource, obj: Object) -> Object: ...

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Mapping[str, Any],
        *,
        subresource: Literal["", "status"] = "",
    ) -> Object: ...

    async def delete(self, resource: Resource, key: Key, *, uid: str = "") -> None: ...


class Outbox(Protocol):
    """Facts to the bus."""

    async def tell(self, source: FactSource, facts: Announcements) -> Announcements:
        """Publish what is pending and confirm what needs no more telling; soon over when the bus is down."""
        ...

    async def republish(
        self, source: FactSource, facts: Announcements, *, everything: bool = False
    ) -> Republished:
        """Publish confirmed facts again that the stream does not hold. Raises Retry."""
        ...


class Queue(Protocol):
    """Chunks waiting for agents."""

    async def purge(self, subject: str) -> None: ...


class Recorder(Protocol):
    """Kubernetes events; best effort, never raises."""

    def normal(self, resource: Resource, obj: Object, reason: str, message: str) -> None: ...

    def warning(self, resource: Resource, obj: Object, reason: str, message: str) -> None: ...


@dataclass(frozen=True)
class DataBus:
    """The parts of the bus that effects use: records of runs and nodes, chunks."""

    runs: KeyValue
    nodes: KeyValue
    work: Queue
