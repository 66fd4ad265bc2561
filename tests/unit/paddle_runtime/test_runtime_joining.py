"""The models whose requests may run together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paddle_runtime.domain import joining, tensors
from paddle_runtime.domain.joining import Trials
from paddle_runtime.domain.model import ANY, CARRIERS, Array, Datatype, InvalidInputs, Tensors, TensorSpec

Model = Callable[[Array], Array]


def joins(model: Model, given: Datatype, answered: Datatype, width: int = 4) -> bool:
    """Whether a model of one input `[-1, width]` and one output is joined."""
    takes, gives = TensorSpec("x", given, (ANY, width)), TensorSpec("y", answered, (ANY, width))

    def run(inputs: Tensors) -> Tensors:
        assert inputs["x"].dtype == CARRIERS[given]
        return {"y": model(inputs["x"]).astype(CARRIERS[answered])}

    return Trials(run, [takes], [gives], {}).joins()


@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")
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


def counted(x: Array) -> Array:
    """Each row, divided by the number of rows that are equal to it."""
    _, inverse, counts = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    return x + counts[inverse].reshape(-1, 1)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("model", "datatype"),
    [
        (lambda x: x / max(1, x.max()), Datatype.FP32),
        (lambda x: x - min(-1, x.min()), Datatype.FP64),
        (lambda x: x / max(100, abs(x).max()), Datatype.FP16),
        (lambda x: x + max(20_000, x.max()), Datatype.FP32),
        (counted, Datatype.FP32),
        (lambda x: x + (x < 0).any(), Datatype.FP32),
        (lambda x: x + (x.max() > 9), Datatype.UINT8),
        (lambda x: x - min(-9, x.min()), Datatype.INT8),
        (lambda x: x + max(9, x.max()), Datatype.INT64),
    ],
)
def test_rows_that_depend_on_each_other_only_for_certain_values_are_not(
    model: Model, datatype: Datatype, width: int
) -> None:
    assert not joins(model, datatype, datatype, width)


def test_a_model_that_refuses_unusual_floats_is_not_joined() -> None:
    def model(x: Array) -> Array:
        if abs(x).max() > 1:
            raise InvalidInputs("out of range")
        return x

    assert not joins(model, Datatype.FP32, Datatype.FP32)


@pytest.mark.parametrize("words", [2, 1000])
def test_a_model_of_few_or_many_words_is_joined(words: int) -> None:
    """Integers may be indices, so large ones that the model refuses prove nothing."""

    def model(ids: Array) -> Array:
        if ids.max() >= words:
            raise InvalidInputs("no such word")
        return np.arange(words, dtype=np.float32)[ids] * 3

    assert joins(model, Datatype.INT64, Datatype.FP32)


def test_large_indices_are_not_tried_on_a_gpu() -> None:
    """There, an index out of range ends the process."""
    seen: list[int] = []

    def run(inputs: Tensors) -> Tensors:
        seen.append(int(inputs["x"].max()))
        return {"y": inputs["x"] * np.float32(2)}

    takes, gives = TensorSpec("x", Datatype.INT64, (ANY, 4)), TensorSpec("y", Datatype.FP32, (ANY, 4))

    assert Trials(run, [takes], [gives], {}, tries_indices=False).joins()
    assert max(seen) == 1


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

    assert Trials(run, [takes], gives, {}).joins()
    assert not Trials(run, [takes], gives[1:], {}).joins()


def test_a_fixed_first_dimension_is_not_joined() -> None:
    spec = TensorSpec("x", Datatype.FP32, (2, 3))

    assert not Trials(lambda inputs: inputs, [spec], [spec], {}).joins()


def test_dummies_have_the_shapes_that_are_asked_for() -> None:
    inputs = [TensorSpec("a", Datatype.FP32, (ANY, ANY)), TensorSpec("b", Datatype.INT64, (ANY, 3))]

    made = joining.dummies(inputs, {"a": [1, 5]})

    assert {name: array.shape for name, array in made.items()} == {"a": (1, 5), "b": (1, 3)}
    assert not made["b"].any()
