"""Bus messages wake jobs; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paddlewheel.bus import streams
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import event_filter

DATASET_FACTS = event_filter("datasets", "sampleset")
DATASETS = Subscription("job-controller-datasets", streams.DATASETS.name, (DATASET_FACTS,), drop_stale=True)

LOOK_AGAIN = 1.0
"""Seconds after which a job looks at its data set once more: a fact is told just before the status saying the
same is written, so that the first look may come too early."""

Wake = Callable[[Key, float], None]
"""Reconcile the job in so many seconds."""


class DatasetFacts:
    """Any fact about a data set wakes the jobs that use it.

    Args:
        users_of: the jobs that reference a data set.
    """

    def __init__(self, users_of: Callable[[Key], Iterable[Key]], wake: Wake) -> None:
        self._users_of = users_of
        self._wake = wake

    async def handle(self, delivery: Delivery) -> None:
        """Waking is lost in a crash, but the start reconciles every job anyway."""
        ref = getattr(delivery.event.data, "sample_set", None)
        if ref is None:
            return
        for job in self._users_of(Key(ref.namespace, ref.name)):
            self._wake(job, 0.0)
            self._wake(job, LOOK_AGAIN)
