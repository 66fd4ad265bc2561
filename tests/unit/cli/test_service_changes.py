"""What `paddlewheel service` changes: promotion, abortion, return to an earlier revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from paddlewheel.cli.service import earlier, model_path
from paddlewheel.cli.service_changes import ABORT, PROMOTE, abortion, promotion, restoration
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus
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


def status(phase: str = "", **fields: Any) -> PaddleServiceStatus:
    rollout = {"rollout": {"candidate": "lac-b", "phase": phase}} if phase else {}
    return PaddleServiceStatus.model_validate({**rollout, **fields})


@pytest.mark.parametrize("phase", ["Waiting", "Stepping"])
def test_a_canary_that_is_judged_is_promoted_and_aborted_by_the_controller(phase: str) -> None:
    spec = make_service(**AUTOMATIC)["spec"]
    assert promotion(spec, status(phase)) == {"metadata": {"annotations": {PROMOTE: "lac-b"}}}
    assert abortion(spec, status(phase)) == {"metadata": {"annotations": {ABORT: "lac-b"}}}


def test_a_canary_by_hand_becomes_the_default_without_what_the_default_had_alone() -> None:
    obj = make_service(default=make_endpoint(arg="old"), canary=make_endpoint("2"), canaryTrafficPercent=20)
    assert merged(obj["spec"], promotion(obj["spec"], status("Serving"))["spec"]) == {
        "default": make_endpoint("2")
    }


def test_a_canary_by_hand_is_removed() -> None:
    obj = make_service(canary=make_endpoint("2"), canaryTrafficPercent=20)
    assert merged(obj["spec"], abortion(obj["spec"], status())["spec"]) == {"default": make_endpoint()}


@pytest.mark.parametrize("change", [promotion, abortion])
def test_without_a_canary_there_is_nothing_to_do(change: Any) -> None:
    with pytest.raises(Permanent, match="no canary"):
        change(make_service(**AUTOMATIC)["spec"], status("RolledBack"))


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
    "now", [{}, {"default": {"model": {**MODEL, "version": "7"}}, "workingDir": "/other"}]
)
def test_a_restored_spec_gives_the_very_revision(spec: dict[str, Any], now: dict[str, Any]) -> None:
    before, after = revision(make_service(**spec)), make_service(**now)
    restored = merged(after, restoration(after["spec"], before.content))
    assert revision(restored).name == before.name


def test_the_number_of_pods_is_not_part_of_a_revision() -> None:
    before = revision(make_service(service={"minScale": 1, "target": 5}))
    now = make_service(service={"minScale": 3, "maxScale": 9})
    restored = merged(now, restoration(now["spec"], before.content))
    assert (restored["spec"]["service"]["minScale"], restored["spec"]["service"]["maxScale"]) == (3, 9)


REVISIONS = status(
    default={"name": "lac-c"},
    revisions=[
        {"name": "lac-d", "number": 4, "wasReady": True},
        {"name": "lac-c", "number": 3, "wasReady": True},
        {"name": "lac-b", "number": 2},
        {"name": "lac-a", "number": 1, "wasReady": True},
    ],
)


@pytest.mark.parametrize(("to", "name"), [("", "lac-a"), ("2", "lac-b"), ("lac-d", "lac-d")])
def test_the_earlier_revision_is_the_newest_that_was_ready_before_the_stable_one(to: str, name: str) -> None:
    assert earlier(REVISIONS, to).name == name


@pytest.mark.parametrize("to", ["9", "lac-x"])
def test_a_revision_that_is_not_kept_is_named_with_those_that_are(to: str) -> None:
    with pytest.raises(Permanent, match=rf"no revision {to} is kept; there are: 4 \(lac-d\)"):
        earlier(REVISIONS, to)


def test_the_path_of_a_prediction_follows_from_the_model() -> None:
    assert model_path(make_service("lac", default={"model": {"uri": "s3://a/b"}})) == "/v2/models/lac/infer"
    assert model_path(make_service("lac", default={"model": MODEL})) == "/v2/models/digits/infer"
    with pytest.raises(Permanent, match="--path"):
        model_path(make_service())
