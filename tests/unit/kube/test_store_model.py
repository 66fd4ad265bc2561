"""Random sequences of own and foreign writes, late responses, late and repeated events, and relists."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api_watch import differences
from paddlewheel.kube.objects import key_of, uid_of, version_of
from paddlewheel.kube.ports import Change, Object
from paddlewheel.kube.store import CONFIRM_TIMEOUT_SECONDS, WatchedStore
from paddlewheel.testkit.clock import ManualClock

KEYS = [Key("n", "a"), Key("n", "b")]


def without_deletion(obj: Object) -> Object:
    return {
        **obj,
        "metadata": {name: v for name, v in obj["metadata"].items() if name != "deletionTimestamp"},
    }


class StoreMachine(RuleBasedStateMachine):
    """A server with late watch events and late responses, compared with one store."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = WatchedStore(self.clock, {"uid": lambda obj: [uid_of(obj)]})
        self.version = 0
        self.server: dict[Key, Object] = {}
        self.events: deque[Change] = deque()
        self.known: dict[Key, Object] = {}
        self.delivered: list[Change] = []
        self.answers: list[Callable[[], None]] = []
        self.shown: dict[Key, int] = {}
        self.own: set[int] = set()

    def change(self, key: Key, uid: str = "") -> Object:
        self.version += 1
        kind = "MODIFIED" if key in self.server else "ADDED"
        uid = uid or uid_of(self.server[key])
        meta = {
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid,
            "resourceVersion": str(self.version),
        }
        self.server[key] = {"metadata": meta}
        self.events.append(Change("ADDED" if kind == "ADDED" else "MODIFIED", self.server[key]))
        return self.server[key]

    def remove(self, key: Key) -> Object:
        self.version += 1
        gone = self.server.pop(key)
        last = {"metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self.events.append(Change("DELETED", last))
        return gone

    @rule(key=st.sampled_from(KEYS), own=st.booleans())
    def write(self, key: Key, own: bool) -> None:
        written = self.change(key) if key in self.server else self.change(key, f"uid-{self.version}")
        if own:
            self.own.add(self.version)
            self.answers.append(lambda: self.store.wrote(written))

    @rule(key=st.sampled_from(KEYS), own=st.booleans(), vanishes=st.booleans())
    def delete(self, key: Key, own: bool, vanishes: bool) -> None:
        if key not in self.server:
            return
        gone = self.remove(key)
        if own:
            self.answers.append(lambda: self.store.deleting(key, uid_of(gone), vanishes=vanishes))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Responses arrive in any order, because they use different connections."""
        self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))()

    @precondition(lambda self: self.events)
    @rule(count=st.integers(1, 3))
    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.events))):
            change = self.events.popleft()
            key = key_of(change.obj)
            if change.type == "DELETED":
                self.known.pop(key, None)
            else:
                self.known[key] = change.obj
            self.pass_on(change)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.store.apply(data.draw(st.sampled_from(self.delivered)))

    @rule()
    def relist(self) -> None:
        """The connection breaks, and the events in flight are lost."""
        self.events.clear()
        for change in differences(self.known, self.server, str(self.version)):
            self.pass_on(change)
        self.known = dict(self.server)

    def pass_on(self, change: Change) -> None:
        key = key_of(change.obj)
        before = self.store.get(key)
        passed = self.store.apply(change)
        self.delivered = [*self.delivered[-5:], change]
        if passed and self.store.is_own(change):
            assert int(version_of(change.obj)) in self.own
        if not passed and before is not None:
            assert int(version_of(change.obj)) <= int(version_of(before))

    @rule(part=st.sampled_from([0.1, 0.4]))
    def wait(self, part: float) -> None:
        """Time passes, but a response never takes CONFIRM_TIMEOUT_SECONDS."""
        for answer in self.answers:
            answer()
        self.answers.clear()
        if self.events:
            self.deliver(len(self.events))
        self.delivered.clear()
        asyncio.run(self.clock.advance(CONFIRM_TIMEOUT_SECONDS * part))

    @invariant()
    def never_shows_an_older_state(self) -> None:
        for key in KEYS:
            if (obj := self.store.get(key)) is not None:
                assert int(version_of(obj)) >= self.shown.get(key, 0)
                self.shown[key] = int(version_of(obj))
                assert self.store.by_index("uid", uid_of(obj)) == [obj]

    def teardown(self) -> None:
        """After all events and time-outs, the store equals the state of the server."""
        for answer in self.answers:
            answer()
        while self.events:
            self.deliver(len(self.events))
        for key in KEYS:
            shown, real = self.store.get(key), self.server.get(key)
            assert real is None or shown is None or without_deletion(shown) == real
            assert real is None or shown is not None
        asyncio.run(self.clock.advance(CONFIRM_TIMEOUT_SECONDS))
        assert {key: obj for key in KEYS if (obj := self.store.get(key))} == self.server
        assert not self.store._unconfirmed
        assert not self.store._tombstones


StoreMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("PADDLEWHEEL_LONG_PROPERTIES", "30")), stateful_step_count=40
)
test_the_store_follows_the_server = StoreMachine.TestCase
