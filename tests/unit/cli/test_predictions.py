"""What `paddlewheel service predict` refuses before it asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from paddlewheel.cli.predictions import ask_gateway, check_has_pods
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus
from paddlewheel.core.errors import Permanent


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        (("--gateway", "10.0.0.1"), "write http://10.0.0.1"),
        (("--gateway", "gateway:8000"), "write http://gateway:8000"),
        (("--gateway", "http://a:b"), "is not a URL"),
        (("--path", "lac/prediction"), "write /lac/prediction"),
    ],
)
def test_a_wrong_address_is_refused_by_its_option_with_a_remedy(
    paddlewheel: Callable[..., Result], option: tuple[str, str], remedy: str
) -> None:
    ended = paddlewheel("service", "predict", "lac", "--data", "{}", *option)
    assert ended.exit_code == 2
    assert option[0] in ended.stderr
    assert remedy in ended.stderr


async def test_a_service_without_a_route_is_not_asked_through_a_gateway() -> None:
    with pytest.raises(
        Permanent, match=r"NoAddress: status.url is empty.*--gateway.*servingController.gateway"
    ):
        await ask_gateway("http://127.0.0.1:1", PaddleServiceStatus(), "/", b"{}")


@pytest.mark.parametrize(
    ("mode", "replicas", "is_asleep"), [("Knative", 0, True), ("Knative", 1, False), ("Kubernetes", 0, False)]
)
def test_a_service_that_sleeps_is_not_waited_for(mode: str, replicas: int, is_asleep: bool) -> None:
    revision = {"name": "lac-a", "replicas": replicas}
    status = {"mode": mode, "default": {"name": "lac-a"}, "revisions": [revision]}
    if not is_asleep:
        return check_has_pods(PaddleServiceStatus.model_validate(status))
    with pytest.raises(Permanent, match=r"lac-a has no pods.*--gateway.*minScale: 1"):
        check_has_pods(PaddleServiceStatus.model_validate(status))
    return None
