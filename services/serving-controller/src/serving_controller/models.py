"""Published models, as the bus tells them: read from the first one on at every start, and followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import event_filter
from serving_controller.domain.chosen import Publication, key_of

MODELS = Reading((event_filter("models", "model", "published"),), since=datetime(1970, 1, 1, tzinfo=UTC))
"""Every replica reads all of them: which service follows which model can change at any time."""


class Models:
    """The newest publication of each model, of each of its versions, and of each digest.

    Args:
        wake: gets the model's namespace and name.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._newest: dict[Key, dict[str, Publication]] = {}
        self._has_read_all = False

    def caught_up(self) -> None:
        """Everything that was published before the start is known: the newest of it is the newest."""
        self._has_read_all = True
        for model in self._newest:
            self._wake(model)

    async def published(self, delivery: Delivery) -> None:
        """A model was published, now or long ago."""
        event = delivery.event
        if not isinstance(event.data, ModelPublished) or event.data.source is None:
            return
        model = event.data
        key = Key(model.source.namespace if model.source else "", model.name)
        new = Publication(model.name, model.version, model.digest, model.uri, event.time)
        if self._take_in(key, new) and self._has_read_all:
            self._wake(key)

    def of(self, namespace: str, keys: frozenset[str]) -> Mapping[str, Publication]:
        """Publications by the keys under which services follow them; none for what was never published, and
        none before all is read: an old version would be taken for the newest."""
        if not self._has_read_all:
            return {}
        found = {key: self._newest.get(Key(namespace, key.partition("@")[0]), {}).get(key) for key in keys}
        return {key: publication for key, publication in found.items() if publication is not None}

    def _take_in(self, key: Key, new: Publication) -> bool:
        known = self._newest.setdefault(key, {})
        followed = {key_of(new.name, v, d) for v in ("", new.version) for d in ("", new.digest)}
        is_newer = [name for name in followed if name not in known or known[name].at < new.at]
        known |= dict.fromkeys(is_newer, new)
        return bool(is_newer)
