"""What `paddlewheel service` changes: promotion, abortion, return to an earlier revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from paddlewheel.cli.predictions import model_path
from paddlewheel.cli.service_changes import (
    ABORT,
    PROMOTE,
    SERVE,
    Change,
    Seen,
    abortion,
    earlier,
    is_reached,
    promotion,
    read,
    release,
    restoration,
)
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.paddleservices import make_endpoint, make_service
from serving_controller.domain.model import Options, parse_service
from serving_controller.domain.revision import Revision, revision_of

MODEL = {"name": "digits", "uri": "s3://models/digits/1", "secretRef": {"name": "keys"}}
AUTOMATIC: dict[str, Any] = {"rollout": {"mode": "Automatic"}}


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386, as the API server applies a merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(old) if isinstance(old, Mapping) else {}
    result = {**base, **{name: merged(base.get(name), value) for name, value in patch.items()}}
    return {name: value for name, value in result.items() if value is not None}


def revision(obj: Mapping[str, Any]) -> Revision:
    own = parse_service({**obj, "metadata": {**obj["metadata"], "uid": "u", "generation": 1}})
    assert own.spec.default is not None
    made = revision_of(own, own.spec.default, {}, Options())
    assert made is not None
    return made


def make_seen(
    phase: str = "",
    *,
    default: str = "lac-b",
    held: str = "",
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Seen:
    """A service as it is read; with a phase, `lac-c` is its last change."""
    obj = make_service(**(spec or {}))
    metadata = {**obj["metadata"], "generation": 1, "annotations": {SERVE: held} if held else {}}
    rollout = {"rollout": {"candidate": "lac-c", "phase": phase}} if phase else {}
    whole = {
        "observedGeneration": 1,
        "default": {"name": default},
        "revisions": REVISIONS,
        **rollout,
        **status,
    }
    return read({**obj, "metadata": metadata, "status": whole})


REVISIONS = [
    {"name": "lac-c", "number": 3, "wasReady": True},
    {"name": "lac-b", "number": 2, "wasReady": True, "wasStable": True},
    {"name": "lac-a", "number": 1, "wasReady": True, "wasStable": True},
]
CANARY = {"canary": make_endpoint("2"), "canaryTrafficPercent": 20}


def back(seen: Seen, to: str = "", *, content: Mapping[str, Any] | None = None, now: bool = False) -> Change:
    """`rollback` to a revision of this content."""
    wanted = earlier(seen, to)
    return restoration(seen, wanted, content or revision(make_service()).content, now=now)


def annotated(change: Change) -> Mapping[str, Any]:
    found: Mapping[str, Any] = change.patch["metadata"]["annotations"]
    return found


@pytest.mark.parametrize("phase", ["Waiting", "Stepping"])
def test_a_canary_that_is_judged_is_promoted_and_aborted_by_the_controller(phase: str) -> None:
    seen = make_seen(phase, spec=AUTOMATIC)
    promoted, aborted = promotion(seen), abortion(seen)
    assert promoted.patch == {"metadata": {"annotations": {PROMOTE: "lac-c", ABORT: None}}}
    assert aborted.patch == {"metadata": {"annotations": {ABORT: "lac-c", PROMOTE: None}}}
    assert (promoted.goal, aborted.goal) == ("lac-c", "lac-b")


def test_a_canary_by_hand_becomes_the_default_without_what_the_default_had_alone() -> None:
    spec = {"default": make_endpoint(arg="old"), **CANARY}
    seen = make_seen("Serving", spec=spec, canary={"name": "lac-c"})
    change = promotion(seen)
    assert merged(seen.spec, change.patch["spec"]) == {"default": make_endpoint("2")}
    assert change.goal == "lac-c"


def test_a_canary_by_hand_is_removed() -> None:
    seen = make_seen("Serving", spec=CANARY)
    assert merged(seen.spec, abortion(seen).patch["spec"]) == {"default": make_endpoint()}


@pytest.mark.parametrize(("change", "remedy"), [(promotion, "change spec.default"), (abortion, "`rollback`")])
def test_without_a_canary_there_is_nothing_to_do(change: Any, remedy: str) -> None:
    with pytest.raises(Permanent, match=f"no canary.*{remedy}"):
        change(make_seen(spec=AUTOMATIC))


@pytest.mark.parametrize("phase", ["RollingBack", "RolledBack"])
@pytest.mark.parametrize("spec", [AUTOMATIC, {**AUTOMATIC, **CANARY}], ids=["default", "canary"])
def test_what_was_rolled_back_is_not_promoted_but_named_with_a_way(
    spec: Mapping[str, Any], phase: str
) -> None:
    with pytest.raises(Permanent, match=r"lac-c was rolled back.*rollback default/lac --to lac-c --now"):
        promotion(make_seen(phase, spec=spec))


def test_a_canary_whose_model_was_not_published_is_not_promoted() -> None:
    waiting = {"type": "Progressing", "status": "True", "reason": "ModelNotPublished"}
    with pytest.raises(Permanent, match="the model of the canary has no published version"):
        promotion(make_seen(spec=CANARY, conditions=[waiting]))


@pytest.mark.parametrize("change", [promotion, abortion, back])
def test_nothing_is_decided_about_a_spec_that_the_controller_has_not_seen(change: Any) -> None:
    with pytest.raises(Permanent, match=r"NotObserved: default/lac.*run the command again"):
        change(make_seen("Stepping", spec=AUTOMATIC, observedGeneration=0))


@pytest.mark.parametrize("change", [promotion, abortion, back])
def test_a_service_that_is_held_by_hand_is_let_go_of_first(change: Any) -> None:
    seen = make_seen("Serving", held="lac-a", spec=CANARY)
    with pytest.raises(
        Permanent, match=r"lac-a gets all requests.*`paddlewheel service release default/lac`"
    ):
        change(seen)
    assert annotated(release(seen)) == {SERVE: None}


def test_an_annotation_that_names_no_revision_holds_nothing_and_can_be_removed() -> None:
    seen = make_seen(held="lac-x", spec=CANARY)
    assert abortion(seen).patch["spec"]["canary"] is None
    assert annotated(release(seen)) == {SERVE: None}


def test_a_service_that_follows_its_spec_is_not_released() -> None:
    with pytest.raises(Permanent, match="NothingToRelease"):
        release(make_seen())


@pytest.mark.parametrize(
    "spec",
    [
        {"default": make_endpoint(arg="serve 'x'")},
        {"default": {"containerImage": "host:5000/lac", "tag": "1", "port": 80}},
        {"default": {"containerImage": f"lac@sha256:{'0' * 64}", "port": 80}},
        {"default": {"model": MODEL}},
        {"resources": {"limits": {"cpu": "2"}}, "workingDir": "/w", "runtimeVersion": "main"},
        {"service": {"target": 5, "metric": "rps", "minScale": 1, "window": 30, "autoscaler": "hpa"}},
        {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    ],
    ids=lambda spec: ",".join(spec),
)
@pytest.mark.parametrize(
    "now",
    [
        {},
        {"default": {"model": {**MODEL, "version": "7"}}, "workingDir": "/other"},
        {"service": {"target": 9, "metric": "cpu", "panicWindow": "20", "concurrencyLimit": 3}},
    ],
    ids=["little", "model", "autoscaling"],
)
def test_a_restored_spec_gives_the_very_revision(spec: dict[str, Any], now: dict[str, Any]) -> None:
    before, after = revision(make_service(**spec)), make_service(**now)
    restored = merged(after, back(make_seen(spec=now), content=before.content).patch)
    assert revision(restored).name == before.name


def test_the_number_of_pods_is_not_part_of_a_revision() -> None:
    before = revision(make_service(service={"minScale": 1, "target": 5}))
    seen = make_seen(spec={"service": {"minScale": 3, "maxScale": 9}})
    assert merged(seen.spec, back(seen, content=before.content).patch["spec"])["service"] == {
        "minScale": 3, "maxScale": 9, "target": 5,
    }  # fmt: skip


def test_no_default_of_the_autoscaler_is_written_into_a_spec_without_any() -> None:
    assert "service" not in back(make_seen()).patch["spec"]


@pytest.mark.parametrize(("old", "new"), [({"name": "digits"}, MODEL), ({"name": "x"}, {"claim": "models"})])
def test_a_return_says_that_a_model_is_not_followed_any_more(old: Any, new: Any) -> None:
    change = back(make_seen(spec={"default": {"model": old}}), content={"model": new, "port": 8080})
    assert f"publications of {old['name']} are ignored now: remove" in change.summary


@pytest.mark.parametrize("old", [MODEL, {"claim": "models"}, None])
def test_a_model_that_was_not_followed_is_restored_without_such_words(old: Any) -> None:
    spec = {"default": {"model": old}} if old else {}
    change = back(make_seen(spec=spec), content={"model": MODEL, "port": 8080})
    assert "publications" not in change.summary


# Which revision


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("lac-a", make_seen()),
        ("lac-b", make_seen("Waiting", spec=AUTOMATIC)),
        ("lac-b", make_seen("Stepping", spec=AUTOMATIC)),
        ("lac-b", make_seen("RollingBack", spec=AUTOMATIC)),
        ("lac-b", make_seen("RolledBack", spec=AUTOMATIC)),
        ("lac-a", make_seen("RolledBack", spec=AUTOMATIC, held="lac-b")),
        ("lac-b", make_seen("Serving", spec=CANARY)),
        ("lac-a", make_seen("RolledBack", spec={**AUTOMATIC, **CANARY})),
        ("lac-b", make_seen(revisions=[{**REVISIONS[0], "role": "Candidate"}, *REVISIONS[1:]])),
        (
            "lac-b",
            make_seen(conditions=[{"type": "Progressing", "status": "True", "reason": "ModelNotPublished"}]),
        ),
    ],
    ids=[
        "settled",
        "waiting",
        "stepping",
        "rolling back",
        "rejected",
        "held",
        "canary",
        "rejected canary",
        "starting",
        "unpublished",
    ],
)
def test_the_revision_before_is_the_stable_one_while_the_spec_asks_for_another(name: str, seen: Seen) -> None:
    assert earlier(seen, "").name == name


def test_a_revision_that_was_rejected_is_none_to_go_back_to() -> None:
    stable = {"name": "lac-d", "number": 4, "wasReady": True, "wasStable": True}
    assert earlier(make_seen(default="lac-d", revisions=[stable, *REVISIONS]), "").name == "lac-b"


def test_what_was_left_for_an_older_one_is_none_to_go_back_to() -> None:
    idle = ["2026-01-01T03:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]
    revisions = [{**r, "idleSince": since} for r, since in zip(REVISIONS, idle, strict=True)]
    stable = {"name": "lac-d", "number": 4, "wasStable": True}
    assert earlier(make_seen(default="lac-d", revisions=[stable, *revisions]), "").name == "lac-a"


@pytest.mark.parametrize(("to", "name"), [("2", "lac-b"), ("lac-c", "lac-c")])
def test_a_revision_is_named_by_number_or_name(to: str, name: str) -> None:
    assert earlier(make_seen(), to).name == name


@pytest.mark.parametrize("to", ["9", "lac-x"])
def test_a_revision_that_is_not_kept_is_named_with_those_that_are(to: str) -> None:
    with pytest.raises(Permanent, match=rf"no revision {to} is kept; kept revisions: 3 \(lac-c\)"):
        earlier(make_seen(), to)


def test_before_the_first_there_is_none() -> None:
    with pytest.raises(Permanent, match="no earlier revision that was stable"):
        earlier(make_seen(default="lac-a"), "")


# How it is served again


def test_a_return_forgets_words_about_a_rollout() -> None:
    assert annotated(back(make_seen())) == {PROMOTE: None, ABORT: None}


def test_under_rules_a_return_takes_the_steps_or_is_held() -> None:
    seen = make_seen(spec=AUTOMATIC)
    slow, fast = back(seen), back(seen, now=True)
    assert "through the steps of spec.rollout beside lac-b; `rollback --now`" in slow.summary
    assert SERVE not in annotated(slow)
    assert annotated(fast)[SERVE] == fast.goal == "lac-a"
    assert "have no effect until `paddlewheel service release default/lac`" in fast.summary


@pytest.mark.parametrize(
    "seen", [make_seen("Stepping", spec=AUTOMATIC), make_seen()], ids=["to the stable one", "without rules"]
)
def test_what_has_no_steps_needs_no_hold(seen: Seen) -> None:
    assert SERVE not in annotated(back(seen, now=True))


def test_a_hold_is_moved_to_another_revision() -> None:
    assert annotated(back(make_seen(held="lac-b"), "1", now=True))[SERVE] == "lac-a"


def test_what_was_rolled_back_is_served_only_if_it_is_held() -> None:
    seen = make_seen("RolledBack", spec=AUTOMATIC)
    with pytest.raises(Permanent, match="lac-c was rolled back"):
        back(seen, "3")
    assert annotated(back(seen, "3", now=True))[SERVE] == "lac-c"


# Whether it is so

GOAL = Change({}, "", "lac-b")


@pytest.mark.parametrize(
    ("seen", "is_so"),
    [
        (make_seen(), True),
        (make_seen(default="lac-a"), False),
        (make_seen(canary={"name": "lac-c"}), False),
        (make_seen(observedGeneration=0), False),
        (make_seen(revisions=[{"name": "lac-b", "traffic": 95}, {"name": "lac-a", "traffic": 5}]), False),
        (make_seen(revisions=[{"name": "lac-b", "traffic": 100}, {"name": "lac-a"}]), True),
    ],
)
def test_it_is_so_when_nobody_else_gets_requests_or_may_get_some(seen: Seen, is_so: bool) -> None:
    assert is_reached(GOAL, seen, generation=1) is is_so


def test_a_goal_that_was_rolled_back_is_not_waited_for() -> None:
    rejected = Change({}, "", "lac-c")
    with pytest.raises(Permanent, match="lac-c was rolled back"):
        is_reached(rejected, make_seen("RolledBack", spec=AUTOMATIC), generation=1)
    held = make_seen("RolledBack", spec=AUTOMATIC, held="lac-c")
    assert not is_reached(rejected, held, generation=1)


def test_the_path_of_a_prediction_follows_from_the_model() -> None:
    assert model_path(make_service("lac", default={"model": {"uri": "s3://a/b"}})) == "/v2/models/lac/infer"
    assert model_path(make_service("lac", default={"model": MODEL})) == "/v2/models/digits/infer"
    with pytest.raises(Permanent, match="--path"):
        model_path(make_service())
