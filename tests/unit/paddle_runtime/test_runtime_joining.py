"""Which models' requests may run together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paddle_runtime.domain import joining, tensors
from paddle_runtime.domain.model import ANY, CARRIERS, Array, Datatype, Tensors, TensorSpec

Model = Callable[[Array], Array]


def joins(model: Model, given: Datatype, answered: Datatype, width: int = 4) -> bool:
    """Whether a model of one input `[-1, width]` and one output is joined."""
    takes, gives = TensorSpec("x", given, (ANY, width)), TensorSpec("y", answered, (ANY, width))

    def run(inputs: Tensors) -> Tensors:
        assert inputs["x"].dtype == CARRIERS[given]
        return {"y": model(inputs["x"]).astype(CARRIERS[answered])}

    return joining.joins(run, [takes], [gives], {})


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("model", "datatype"),
    [
        (lambda x: x * 2, Datatype.FP32),
        (lambda x: x * 1e-9, Datatype.FP64),
        (lambda x: x + 1, Datatype.INT64),
        (np.logical_not, Datatype.BOOL),
        (np.sqrt, Datatype.FP16),
        (lambda x: x + np.float32(1e-6 * len(x)), Datatype.FP32),
    ],
    ids=["product", "tiny", "integers", "booleans", "half", "last-bits"],
)
def test_independent_rows_are_joined(model: Model, datatype: Datatype, width: int) -> None:
    assert joins(model, datatype, datatype, width)


def test_bf16_is_compared_as_the_numbers_it_means() -> None:
    def model(bits: Array) -> Array:
        return tensors.narrowed(tensors.widened(bits) * (1 + 0.004 * (len(bits) == 3)))

    assert joins(model, Datatype.BF16, Datatype.BF16)
    assert not joins(lambda bits: bits[::-1], Datatype.BF16, Datatype.BF16)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("model", "given", "answered"),
    [
        (lambda x: x - x.mean(0), Datatype.FP32, Datatype.FP32),
        (lambda x: x / x.sum(0) * 1e-4, Datatype.FP32, Datatype.FP32),
        (lambda x: x + 1e-5 * x.mean(0), Datatype.FP64, Datatype.FP64),
        (lambda x: x - x.max(0), Datatype.FP32, Datatype.FP32),
        (lambda x: np.cumsum(x, 0), Datatype.FP32, Datatype.FP32),
        (lambda x: np.broadcast_to(x[:1], x.shape), Datatype.FP32, Datatype.FP32),
        (lambda x: x[::-1], Datatype.FP32, Datatype.FP32),
        (lambda x: x / len(x), Datatype.FP32, Datatype.FP32),
        (lambda ids: ids - ids.mean(0), Datatype.INT64, Datatype.FP32),
        (lambda ids: ids - ids.max(0), Datatype.INT32, Datatype.INT32),
        (lambda ids: ids - ids.min(0), Datatype.UINT8, Datatype.UINT8),
        (lambda flags: np.broadcast_to(flags.any(0), flags.shape), Datatype.BOOL, Datatype.BOOL),
        (lambda bits: tensors.narrowed(tensors.widened(bits) - tensors.widened(bits).mean(0)), Datatype.BF16,
         Datatype.BF16),
    ],
)  # fmt: skip
def test_rows_that_depend_on_each_other_are_not(
    model: Model, given: Datatype, answered: Datatype, width: int
) -> None:
    assert not joins(model, given, answered, width)


@pytest.mark.parametrize(
    "model",
    [np.zeros_like, lambda x: np.full_like(x, np.nan), lambda x: x[:, :0], lambda x: x[:2]],
    ids=["constant", "not numbers", "empty", "other rows"],
)
def test_a_model_whose_probes_tell_nothing_is_not_joined(model: Model) -> None:
    assert not joins(model, Datatype.FP32, Datatype.FP32)


def test_labels_need_not_differ_where_scores_do() -> None:
    takes = TensorSpec("x", Datatype.FP32, (ANY, 2))
    gives = [TensorSpec("score", Datatype.FP32, (ANY, 2)), TensorSpec("label", Datatype.INT64, (ANY,))]

    def run(inputs: Tensors) -> Tensors:
        return {"score": inputs["x"], "label": (inputs["x"].sum(1) > 100).astype(np.int64)}

    assert joining.joins(run, [takes], gives, {})
    assert not joining.joins(run, [takes], gives[1:], {})


def test_a_fixed_first_dimension_is_not_joined() -> None:
    spec = TensorSpec("x", Datatype.FP32, (2, 3))

    assert not joining.joins(lambda inputs: inputs, [spec], [spec], {})


def test_dummies_have_the_shapes_that_are_asked_for() -> None:
    inputs = [TensorSpec("a", Datatype.FP32, (ANY, ANY)), TensorSpec("b", Datatype.INT64, (ANY, 3))]

    made = joining.dummies(inputs, {"a": [1, 5]})

    assert {name: array.shape for name, array in made.items()} == {"a": (1, 5), "b": (1, 3)}
    assert not made["b"].any()
