"""The executor tries every action. A failed action has its own backoff and hides no other."""

from __future__ import annotations

from collections import Counter

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube import events
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Object, Resource
from paddlewheel.operator.domain.plan import MESSAGE_LIMIT, Action, Applied, Create, Delete, Patch, Trouble
from paddlewheel.operator.executor import FIRST_BATCH, Executor
from paddlewheel.operator.failures import (
    RETRY_MAX_INTERVAL_SECONDS,
    RETRY_MIN_INTERVAL_SECONDS,
    Owner,
)
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster, Verb

OWNER = Owner("uid-of-owner", 1)
RESOURCES = {resource.kind: resource for resource in (PODS, CONFIG_MAPS)}


def make_object(name: str, kind: str = "Pod", owner: str = OWNER.uid) -> Object:
    reference = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}
    metadata = {"namespace": "ns", "name": name, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def create(name: str, kind: str = "Pod", needs: tuple[str, ...] = ()) -> Create:
    return Create(kind, make_object(name, kind), needs)


class ExecutorHarness:
    """An executor with a memory cluster. `tries` counts the calls that reach the API server."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock.now)
        self.executor = Executor(self.cluster, RESOURCES, {}, self.clock)
        self.tries: Counter[tuple[str, str]] = Counter()
        self.errors: dict[tuple[str, str], Exception] = {}
        self.cluster.intercept = self._intercept

    def _intercept(self, verb: Verb, _: Resource, key: Key) -> None:
        self.tries[verb, key.name] += 1
        if error := self.errors.get((verb, key.name)):
            raise error

    async def apply(self, *actions: Action, owner: Owner = OWNER) -> Applied:
        return await self.executor.apply(owner, actions)

    async def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in await self.cluster.list(PODS)]


@pytest.fixture
def harness() -> ExecutorHarness:
    return ExecutorHarness()


@pytest.mark.parametrize("error", [Retry("ServerError", "500"), Permanent("Forbidden", "quota exceeded")])
async def test_a_child_that_fails_hides_no_other(harness: ExecutorHarness, error: Exception) -> None:
    harness.errors["create", "b"] = error
    applied = await harness.apply(create("a"), create("b"), create("c"))
    assert await harness.pods() == ["a", "c"]
    assert applied.created == ("Pod", "Pod")
    assert [(t.verb, t.key.name, t.reason) for t in applied.troubles] == [
        ("create", "b", error.reason)  # type: ignore[attr-defined]
    ]


async def test_deletes_and_patches_fail_one_by_one_too(harness: ExecutorHarness) -> None:
    for name in ("a", "b"):
        await harness.cluster.create(PODS, make_object(name))
    uid = (await harness.cluster.get(PODS, Key("ns", "b")))["metadata"]["uid"]
    harness.errors["patch", "a"] = Retry("ServerError", "502")
    applied = await harness.apply(
        Patch("Pod", Key("ns", "a"), {"metadata": {"labels": {"x": "y"}}}),
        Delete("Pod", Key("ns", "b"), uid),
    )
    assert await harness.pods() == ["a"]
    assert [t.verb for t in applied.troubles] == ["patch"]


async def test_wakes_do_not_multiply_the_tries_of_a_failing_child(harness: ExecutorHarness) -> None:
    names = [f"p{n}" for n in range(100)]
    for name in names:
        harness.errors["create", name] = Permanent("Forbidden", "exceeded quota")
    for _ in range(10):
        applied = await harness.apply(*map(create, names))
        assert len(applied.troubles) == FIRST_BATCH
    assert sum(harness.tries.values()) == FIRST_BATCH
    assert applied.retry_after == RETRY_MIN_INTERVAL_SECONDS


async def test_what_was_not_tried_behind_a_failed_batch_is_not_due_before_it(
    harness: ExecutorHarness,
) -> None:
    names = [f"p{n:03}" for n in range(100)]
    for name in names[1:]:
        harness.errors["create", name] = Permanent("Forbidden", "exceeded quota")
    await harness.apply(*map(create, names))
    left = names[1:]
    for _ in range(5):
        await harness.clock.advance(RETRY_MIN_INTERVAL_SECONDS)
        applied = await harness.apply(*map(create, left))
        assert applied.retry_after is not None
        assert applied.retry_after > 0


async def test_one_that_succeeds_among_many_lets_all_be_tried(harness: ExecutorHarness) -> None:
    names = [f"p{n:02}" for n in range(60)]
    for name in names[1:]:
        harness.errors["create", name] = Permanent("Forbidden", "exceeded quota")
    del harness.errors["create", names[20]]
    applied = await harness.apply(*map(create, names))
    assert applied.created == ("Pod", "Pod")
    assert len(applied.troubles) == 58


async def test_a_patch_leaves_another_object_of_the_same_name_alone(harness: ExecutorHarness) -> None:
    await harness.cluster.create(PODS, make_object("a"))
    uid = (await harness.cluster.get(PODS, Key("ns", "a")))["metadata"]["uid"]
    patch = {"metadata": {"labels": {"released": "true"}}}
    assert await harness.apply(Patch("Pod", Key("ns", "a"), patch, uid="former")) == Applied()
    assert "labels" not in (await harness.cluster.get(PODS, Key("ns", "a")))["metadata"]
    await harness.apply(Patch("Pod", Key("ns", "a"), patch, uid=uid))
    assert (await harness.cluster.get(PODS, Key("ns", "a")))["metadata"]["labels"] == {"released": "true"}


async def test_an_owner_forgotten_in_the_middle_of_a_pass_is_no_bug(harness: ExecutorHarness) -> None:
    def forget_and_fail(verb: Verb, _: Resource, key: Key) -> None:
        if key.name == "b":
            harness.executor.forget(OWNER.uid)
        raise Retry("ServerError")

    harness.cluster.intercept = forget_and_fail
    applied = await harness.apply(create("a"), Patch("Pod", Key("ns", "b"), {}))
    assert len(applied.troubles) == 2


async def test_tries_grow_apart_up_to_a_cap_and_end_with_success(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = Retry("ServerError")
    waits = []
    for _ in range(9):
        applied = await harness.apply(create("a"))
        assert applied.retry_after is not None
        waits.append(applied.retry_after)
        await harness.clock.advance(applied.retry_after)
    assert waits == [min(RETRY_MIN_INTERVAL_SECONDS * 2**n, RETRY_MAX_INTERVAL_SECONDS) for n in range(9)]
    del harness.errors["create", "a"]
    assert await harness.apply(create("a")) == Applied(created=("Pod",))
    assert not harness.executor._failures._held


async def test_a_changed_spec_is_tried_at_once(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = Permanent("Invalid", "no such field")
    await harness.apply(create("a"))
    del harness.errors["create", "a"]
    applied = await harness.apply(create("a"), owner=Owner(OWNER.uid, 2))
    assert applied == Applied(created=("Pod",))


async def test_a_child_that_is_not_wanted_any_more_needs_no_retry(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = Retry("ServerError")
    await harness.apply(create("a"))
    assert await harness.apply() == Applied()
    assert not harness.executor._failures._held


async def test_an_owner_that_is_gone_is_forgotten(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = Retry("ServerError")
    await harness.apply(create("a"))
    harness.executor.forget(OWNER.uid)
    assert not harness.executor._failures._held
    harness.executor.forget("never-seen")


async def test_what_needs_a_kind_in_trouble_waits_and_the_rest_does_not(harness: ExecutorHarness) -> None:
    harness.errors["create", "config"] = Retry("ServerError")
    needing = create("needing", needs=("ConfigMap",))
    await harness.apply(create("config", "ConfigMap"), needing, create("free"))
    assert await harness.pods() == ["free"]
    del harness.errors["create", "config"]
    await harness.clock.advance(RETRY_MIN_INTERVAL_SECONDS)
    await harness.apply(create("config", "ConfigMap"), needing)
    assert await harness.pods() == ["free", "needing"]


async def test_a_child_of_ours_that_exists_already_counts_as_created(harness: ExecutorHarness) -> None:
    await harness.cluster.create(PODS, make_object("a"))
    assert await harness.apply(create("a")) == Applied(created=("Pod",))


async def test_an_object_of_another_owner_is_a_trouble_and_is_not_touched(harness: ExecutorHarness) -> None:
    await harness.cluster.create(PODS, make_object("a", owner="another"))
    before = await harness.cluster.get(PODS, Key("ns", "a"))
    applied = await harness.apply(create("a"))
    assert [t.reason for t in applied.troubles] == ["OwnedByAnother"]
    assert await harness.cluster.get(PODS, Key("ns", "a")) == before


async def test_a_child_that_came_and_went_is_tried_again(harness: ExecutorHarness) -> None:
    await harness.cluster.create(PODS, make_object("a"))
    harness.errors["get", "a"] = NotFound("pods ns/a")
    applied = await harness.apply(create("a"))
    assert [t.reason for t in applied.troubles] == ["NotFound"]


async def test_patching_what_is_gone_is_no_trouble(harness: ExecutorHarness) -> None:
    assert await harness.apply(Patch("Pod", Key("ns", "gone"), {"metadata": {}})) == Applied()


async def test_the_reported_trouble_is_the_same_in_every_pass(harness: ExecutorHarness) -> None:
    for name in ("b", "a", "c"):
        harness.errors["create", name] = Retry("ServerError", name)
    for order in (("a", "b", "c"), ("c", "b", "a")):
        applied = await harness.apply(*map(create, order))
        assert applied.first is not None
        assert applied.first.subject == "Pod ns/a"


async def test_a_bug_passes_after_every_action_was_tried(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = TypeError("a bug")
    with pytest.raises(TypeError):
        await harness.apply(create("a"), create("b"))
    assert await harness.pods() == ["b"]


async def test_children_are_given_with_their_uids_also_one_found_from_an_earlier_try(
    harness: ExecutorHarness,
) -> None:
    await harness.cluster.create(PODS, make_object("a"))
    applied = await harness.apply(create("a"), create("b"))
    stored = [await harness.cluster.get(PODS, Key("ns", name)) for name in ("a", "b")]
    assert [(c.kind, c.key.name, c.uid) for c in applied.children] == [
        ("Pod", pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in stored
    ]


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [(Retry("ServerError", "500"), False), (NotFound("ns"), False), (Permanent("Forbidden", "quota"), True)],
)
async def test_a_refusal_is_marked_and_what_may_pass_is_not(
    harness: ExecutorHarness, error: Exception, is_refusal: bool
) -> None:
    harness.errors["create", "a"] = error
    applied = await harness.apply(create("a"))
    assert [t.is_refusal for t in applied.troubles] == [is_refusal]


async def test_a_refusal_of_many_words_is_cut_to_its_beginning(harness: ExecutorHarness) -> None:
    harness.errors["create", "a"] = Permanent("Forbidden", "policy says: " + "no " * 40_000)
    [trouble] = (await harness.apply(create("a"))).troubles
    assert len(trouble.message) == MESSAGE_LIMIT
    assert trouble.message.startswith("policy says: no no ")
    assert trouble.message.endswith("...")


@pytest.mark.parametrize("length", [0, 1, MESSAGE_LIMIT - 1, MESSAGE_LIMIT])
def test_a_message_that_fits_stays_whole(length: int) -> None:
    assert Trouble("read", "Pod", Key("ns", "a"), "X", "m" * length).message == "m" * length


def test_a_remedy_after_the_longest_message_fits_into_a_kubernetes_event() -> None:
    assert MESSAGE_LIMIT <= events.MESSAGE_LIMIT - 200
