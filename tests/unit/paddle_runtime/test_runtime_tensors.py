"""Tensors from the wire and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle_runtime.domain import tensors
from paddle_runtime.domain.model import ANY, CARRIERS, Datatype, Refused, TensorSpec


def spec(datatype: Datatype, *shape: int) -> TensorSpec:
    return TensorSpec("x", datatype, shape or (ANY,))


@pytest.mark.parametrize("datatype", Datatype)
def test_bytes_survive_the_round_trip(datatype: Datatype) -> None:
    carrier = CARRIERS[datatype]
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(carrier)

    read = tensors.from_bytes(spec(datatype), (2, 3), memoryview(tensors.to_bytes(array)))

    assert read.dtype == carrier
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("datatype", Datatype)
def test_numbers_get_the_inputs_type(datatype: Datatype) -> None:
    data: Any = [True, False] if datatype is Datatype.BOOL else [1, 0]

    read = tensors.from_json(spec(datatype), (2, 1), data)

    assert read.dtype == CARRIERS[datatype]
    assert read.shape == (2, 1)
    back = tensors.to_json(datatype, read)
    assert back.ravel().tolist() == data


def test_nested_and_flat_lists_are_the_same() -> None:
    nested = tensors.from_json(spec(Datatype.INT32), (2, 2), [[1, 2], [3, 4]])
    flat = tensors.from_json(spec(Datatype.INT32), (2, 2), [1, 2, 3, 4])

    np.testing.assert_array_equal(nested, flat)


@pytest.mark.parametrize(
    ("datatype", "data", "words"),
    [
        (Datatype.INT8, [128], "INT8 holds -128 to 127, got 128"),
        (Datatype.INT8, [-129], "got -129"),
        (Datatype.UINT8, [-1], "UINT8 holds 0 to 255, got -1"),
        (Datatype.INT64, [2**63], "got 9223372036854775808"),
        (Datatype.INT64, [2**70], "integers beyond 64 bits"),
        (Datatype.INT32, [1, 1.5], "expected integers for INT32, got 1.5"),
        (Datatype.INT32, [True], "expected integers for INT32, got True"),
        (Datatype.INT32, [1, True], "expected integers for INT32, got True"),
        (Datatype.FP32, [[1.0], [False]], "expected numbers for FP32, got False"),
        (Datatype.BOOL, [True, 1], "expected true or false for BOOL, got 1"),
        (Datatype.FP32, [None], "expected numbers for FP32, got None"),
        (Datatype.FP32, [1.0, "2"], "got '2'"),
        (Datatype.BOOL, [1], "expected true or false for BOOL, got 1"),
        (Datatype.FP32, 1.0, "data must be a list of values, got 1.0"),
        (Datatype.FP32, ["a" * 100], "aaaa..."),
        (Datatype.FP32, [[1.0], [1.0, 2.0]], "ragged"),
        (Datatype.FP32, [1.0, 2.0], "expected 1 values for shape [1], got 2"),
    ],
)
def test_what_does_not_fit_is_named(datatype: Datatype, data: Any, words: str) -> None:
    with pytest.raises(Refused, match=r"input 'x'") as refused:
        tensors.from_json(spec(datatype), (1,), data)

    assert words in refused.value.message


def test_a_long_text_among_many_short_ones_takes_no_memory() -> None:
    """NumPy gives each as many bytes as the longest: here 16 TB."""
    with pytest.raises(Refused, match="expected numbers for FP32, got 'bbb"):
        tensors.from_json(spec(Datatype.FP32), (1,), ["b" * 2_000_000, *["a"] * 2_000_000])


@pytest.mark.parametrize("least", [-128, 127])
def test_the_ends_of_a_range_fit(least: int) -> None:
    assert tensors.from_json(spec(Datatype.INT8), (1,), [least]).tolist() == [least]


def test_the_length_of_binary_data_must_fit() -> None:
    with pytest.raises(Refused, match=r"expected 8 bytes for FP32 \[2\], got 7"):
        tensors.from_bytes(spec(Datatype.FP32), (2,), memoryview(b"1234567"))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (1.0, 1.0),
        (-3.140625, -3.140625),
        (1.00390625, 1.0),
        (1.01171875, 1.015625),
        (float("inf"), float("inf")),
        (3.4e38, float("inf")),
    ],
)
def test_bf16_is_rounded_to_the_nearest_even(value: float, kept: float) -> None:
    narrowed = tensors.narrowed(np.array([value], np.float32))

    assert tensors.widened(narrowed).tolist() == [kept]


def test_bf16_keeps_nan() -> None:
    assert np.isnan(tensors.widened(tensors.narrowed(np.array([float("nan")], np.float32))))[0]


@pytest.mark.parametrize(
    ("datatype", "shape", "fits"),
    [
        ("FP32", (3, 1, 8), True),
        ("FP32", (1, 1, 8), True),
        ("FP32", (0, 1, 8), False),
        ("FP32", (3, 2, 8), False),
        ("FP32", (3, 1), False),
        ("FP32", (3, 1, 8, 1), False),
        ("FP64", (3, 1, 8), False),
    ],
)
def test_shape_and_datatype_are_compared(datatype: str, shape: tuple[int, ...], fits: bool) -> None:
    wanted = spec(Datatype.FP32, ANY, 1, 8)
    if fits:
        tensors.check(wanted, datatype, shape)
        return
    with pytest.raises(Refused) as refused:
        tensors.check(wanted, datatype, shape)
    assert refused.value.message == (
        f"input 'x': expected FP32 [-1, 1, 8] (-1: any size from 1), got {datatype} {list(shape)}"
    )
