"""Pods of a namespace, listed for all sets that ask for them.

They are not watched: only sets that are being deleted want those of others, which may be thousands.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from dataset_controller.timing import POD_LIST_IDLE_GRACE_SECONDS
from paddlewheel.contracts.objects import spec_of
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.kube.ports import PODS, Cluster, Object, Objects

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class User:
    """A pod with a claim, which has not ended.

    Args:
        is_placed: on a node; the others start nowhere once the claim goes.
    """

    name: str
    is_placed: bool


@dataclass(frozen=True)
class PodList:
    """Who uses which claim. At the monotonic time `at` the API server had answered."""

    at: float
    users: Mapping[str, tuple[User, ...]]


@dataclass
class _Namespace:
    """At most one LIST at a time, and how the last one ended."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    began: float = float("-inf")
    asked_at: float = 0.0
    found: PodList | PaddlewheelError | None = None


class PodLists:
    """One LIST of a namespace at a time, shared by all for whom it is recent enough."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)

    async def since(self, namespace: str, moment: float) -> PodList:
        """A list that began after the monotonic time `moment`. Raises Retry or Permanent."""
        self._forget_unasked()
        there = self._namespaces[namespace]
        there.asked_at = self._clock.monotonic()
        async with there.turn:
            if there.found is None or there.began <= moment:
                there.began = self._clock.monotonic()
                there.found = await self._list(namespace)
            found = there.found
        if isinstance(found, PaddlewheelError):
            raise found
        return found

    async def _list(self, namespace: str) -> PodList | PaddlewheelError:
        try:
            pods = await self._cluster.list(PODS, namespace)
        except PaddlewheelError as error:
            return error
        return PodList(self._clock.monotonic(), _users(pods))

    def _forget_unasked(self) -> None:
        before = self._clock.monotonic() - POD_LIST_IDLE_GRACE_SECONDS
        for name, there in [*self._namespaces.items()]:
            if there.asked_at < before and not there.turn.locked():
                del self._namespaces[name]


def _users(pods: Objects) -> Mapping[str, tuple[User, ...]]:
    """By claim. What else there is of pods is not kept."""
    found: defaultdict[str, list[User]] = defaultdict(list)
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        user = User(pod["metadata"]["name"], bool(spec_of(pod).get("nodeName")))
        for claim in _claims(pod):
            found[claim].append(user)
    return {claim: tuple(users) for claim, users in found.items()}


def _claims(pod: Object) -> set[str]:
    volumes = spec_of(pod).get("volumes") or ()
    claims = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes)
    return {claim for claim in claims if claim}
