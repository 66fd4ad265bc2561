"""The uses of oneDNN that are tried, with a Paddle that fails on some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paddle_runtime import paddle_model
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.model import ANY, Array, Datatype, TensorSpec
from paddle_runtime.orders import Load, Prepare
from paddle_runtime.paddle_model import PaddleModel

UNSUPPORTED = "(Unimplemented) ConvertPirAttribute2RuntimeAttribute not support [pir::Array]"
Fault = Callable[["Config"], Exception | None]


class Config:
    """The calls that a predictor was configured with."""

    def __init__(self, *files: str) -> None:
        self.files = files
        self.calls: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.add("/".join([name, *map(str, arguments)]))

    def onednn_enabled(self) -> bool:
        return "disable_onednn" not in self.calls


class Tensor:
    def __init__(self, array: Array) -> None:
        self.array = array

    def numpy(self) -> Array:
        return self.array


class Paddle:
    """Doubles its input, unless `load` or `run` gives an error for the predictor's configuration."""

    def __init__(self, load: Fault, run: Fault) -> None:
        self.configs: list[Config] = []
        self.alive = 0
        self.inference = SimpleNamespace(Config=Config, create_predictor=self._create)
        self._load, self._run = load, run

    def to_tensor(self, array: Array) -> Array:
        return array

    def _create(self, config: Config) -> Any:
        self.configs.append(config)
        if error := self._load(config):
            raise error
        return Predictor(self, config, self._run)


class Predictor:
    def __init__(self, paddle: Paddle, config: Config, fault: Fault) -> None:
        assert not paddle.alive, "two predictors hold weights at the same time"
        paddle.alive += 1
        self._paddle, self._config, self._fault = paddle, config, fault

    def __del__(self) -> None:
        self._paddle.alive -= 1

    def get_input_names(self) -> list[str]:
        return ["x"]

    def run(self, inputs: Sequence[Array]) -> list[Tensor]:
        if error := self._fault(self._config):
            # An error that is raised again keeps the predictor of the first time alive.
            raise type(error)(*error.args)
        return [Tensor(array * 2) for array in inputs]


def never(_: Config) -> None:
    return None


def with_placement(config: Config) -> Exception | None:
    is_placed = config.onednn_enabled() and "delete_pass/onednn_placement_pass" not in config.calls
    return NotImplementedError(UNSUPPORTED) if is_placed else None


def with_onednn(config: Config) -> Exception | None:
    return RuntimeError("(Fatal) oneDNN fails") if config.onednn_enabled() else None


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Paddle]:
    def install(load: Fault = never, run: Fault = never, shape: tuple[int, ...] = (ANY, 3)) -> Paddle:
        paddle = Paddle(load, run)
        specs = [TensorSpec("x", Datatype.FP32, shape)], [TensorSpec("y", Datatype.FP32, shape)]
        monkeypatch.setattr(paddle_model, "_paddle", lambda: paddle)
        monkeypatch.setattr(paddle_model, "_read_specs", lambda _: specs)
        return paddle

    return install


def load(program: str = "inference.json", device: str = "cpu") -> PaddleModel:
    return PaddleModel(Load(program, "inference.pdiparams"), Prepare(device, 1, 1))


@pytest.mark.parametrize("where", ["load", "run"])
@pytest.mark.parametrize(
    ("fault", "onednn", "faults"),
    [
        (never, "on", 0),
        (with_placement, "without onednn_placement_pass", 1),
        (with_onednn, "off", 2),
    ],
)
def test_a_model_is_tried_with_less_of_onednn_until_it_runs(
    use: Callable[..., Paddle], where: str, fault: Fault, onednn: str, faults: int
) -> None:
    use(**{where: fault})
    model = load()

    warmed = model.warm_up({}, tries_joining=True)

    assert warmed.onednn == onednn
    assert len(warmed.faults) == faults
    assert all(text.startswith("oneDNN ") for text in warmed.faults)
    assert warmed.signature.joins
    assert model.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2.0, 2.0, 2.0]]


def test_the_old_format_has_no_such_pass_and_shares_memory(use: Callable[..., Paddle]) -> None:
    paddle = use(run=with_onednn)

    warmed = load("inference.pdmodel").warm_up({}, tries_joining=True)

    assert warmed.onednn == "off"
    assert len(paddle.configs) == 2
    assert all("enable_memory_optim" in config.calls for config in paddle.configs)


def test_the_new_format_never_shares_memory(use: Callable[..., Paddle]) -> None:
    """Paddle refuses to load it then."""
    paddle = use(run=with_onednn)

    load().warm_up({}, tries_joining=True)

    assert len(paddle.configs) == 3
    assert not any("enable_memory_optim" in config.calls for config in paddle.configs)


def test_a_gpu_has_no_onednn(use: Callable[..., Paddle]) -> None:
    paddle = use(run=lambda _: RuntimeError("out of memory"))

    with pytest.raises(ModelFault, match="out of memory"):
        load(device="gpu").warm_up({}, tries_joining=True)

    assert len(paddle.configs) == 1
    assert "disable_onednn" not in paddle.configs[0].calls


@pytest.mark.parametrize(
    ("error", "shape", "shapes", "advises"),
    [
        (ValueError("(InvalidArgument) too small"), (ANY, 3, ANY), {}, True),
        (ValueError("(InvalidArgument) too small"), (ANY, 3), {}, True),
        (ValueError("(InvalidArgument) too small"), (1, 3), {}, False),
        (ValueError("(InvalidArgument) too small"), (ANY, 3), {"x": [1, 3]}, False),
        (NotImplementedError(UNSUPPORTED), (ANY, 3), {}, False),
        (MemoryError("no memory"), (ANY, 3), {}, False),
    ],
)
def test_shapes_are_advised_only_where_they_may_help(
    use: Callable[..., Paddle],
    error: Exception,
    shape: tuple[int, ...],
    shapes: dict[str, list[int]],
    advises: bool,
) -> None:
    use(run=lambda _: error, shape=shape)

    with pytest.raises(ModelFault) as raised:
        load().warm_up(shapes, tries_joining=True)

    assert raised.value.reason == "WarmUpFailed"
    assert "with and without oneDNN" in raised.value.message
    assert str(error) in raised.value.message
    assert f"x {[max(size, 1) for size in shape]}" in raised.value.message
    assert ("PADDLE_RUNTIME_WARMUP_SHAPES" in raised.value.message) is advises


def test_a_model_that_never_loads_gets_the_reason(use: Callable[..., Paddle]) -> None:
    paddle = use(load=lambda _: ValueError("(InvalidArgument) damaged"))

    with pytest.raises(ModelFault, match="damaged") as raised:
        load()

    assert raised.value.reason == "LoadFailed"
    assert len(paddle.configs) == 3


def test_joining_is_not_tried_on_request(use: Callable[..., Paddle]) -> None:
    use()

    assert not load().warm_up({}, tries_joining=False).signature.joins
