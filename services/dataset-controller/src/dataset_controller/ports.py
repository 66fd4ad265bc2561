"""What this service needs of the outside besides its watched view: writes, one rare read, and the bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from paddlewheel.bus.ports import KeyValue, Publisher
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Object, Resource


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


class Queue(Protocol):
    """Chunks waiting for agents."""

    async def purge(self, subject: str) -> None: ...


class Recorder(Protocol):
    """Kubernetes events; best effort, never raises."""

    def normal(self, resource: Resource, obj: Object, reason: str, message: str) -> None: ...

    def warning(self, resource: Resource, obj: Object, reason: str, message: str) -> None: ...


@dataclass(frozen=True)
class DataBus:
    """The parts of the bus that are used: facts out, records of runs and nodes, chunks."""

    facts: Publisher
    runs: KeyValue
    nodes: KeyValue
    work: Queue
