"""Tensors to and from the wire: JSON lists and little-endian bytes."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from math import prod

import numpy as np

from paddle_runtime.domain.model import ANY, CARRIERS, FLOATS, Array, Datatype, Refused, TensorSpec

_SHOWN = 60
"""Characters of it that a message repeats."""
_PYTHON: Mapping[Datatype, frozenset[type]] = {
    datatype: frozenset({int, float} if datatype in FLOATS else {bool if datatype is Datatype.BOOL else int})
    for datatype in Datatype
}
"""The types of JSON's values by datatype."""


def check(spec: TensorSpec, datatype: str, shape: tuple[int, ...]) -> None:
    """Raises Refused: the tensor that a client announces is not what the model takes."""
    came = f"{datatype[:_SHOWN]} {list(shape)}"
    if datatype != spec.datatype or not spec.admits(shape) or 0 in shape:
        raise Refused(f"input {spec.name!r}: expected {spec}{_note(spec)}, got {came}")


def _note(spec: TensorSpec) -> str:
    return f" ({ANY}: any size from 1)" if ANY in spec.shape else ""


def from_json(spec: TensorSpec, shape: tuple[int, ...], data: object) -> Array:
    """A nested or flat list of numbers (of booleans, for BOOL) in row-major order. Raises Refused."""
    if not isinstance(data, list):
        raise Refused(f"input {spec.name!r}: data must be a list of values, got {shown(data)}")
    array = cast_json(spec, data)
    if array.size != prod(shape):
        wanted = f"{prod(shape)} values for shape {list(shape)}"
        raise Refused(f"input {spec.name!r}: expected {wanted}, got {array.size}")
    return array.reshape(shape)


def cast_json(spec: TensorSpec, data: object) -> Array:
    """Numbers of any nesting with the shape they have. Raises Refused."""
    _check_values(spec, data)
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise Refused(f"input {spec.name!r}: data is ragged: every row must have the same length") from None
    if array.size and not _fits_kind(spec.datatype, array.dtype.kind):
        raise Refused(f"input {spec.name!r}: expected {_kind(spec.datatype)}, got integers beyond 64 bits")
    return _in_range(spec, array)


def from_bytes(spec: TensorSpec, shape: tuple[int, ...], raw: memoryview) -> Array:
    """Raises Refused: the length does not fit the shape."""
    carrier = CARRIERS[spec.datatype]
    wanted = prod(shape) * carrier.itemsize
    if len(raw) != wanted:
        message = f"expected {wanted} bytes for {spec.datatype} {list(shape)}, got {len(raw)}"
        raise Refused(f"input {spec.name!r}: {message}")
    if spec.datatype is Datatype.BOOL:
        return np.frombuffer(raw, np.uint8).reshape(shape).astype(np.bool_)
    return np.frombuffer(raw, carrier.newbyteorder("<")).astype(carrier, copy=False).reshape(shape)


def to_json(datatype: Datatype, array: Array) -> Array:
    """An array that `orjson` writes as numbers: contiguous, native, BF16 widened to FP32."""
    return np.ascontiguousarray(widened(array) if datatype is Datatype.BF16 else array)


def to_bytes(array: Array) -> bytes:
    """Row-major, little-endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def widened(array: Array) -> Array:
    """BF16 as FP32, exactly."""
    return (array.astype(np.uint32) << 16).view(np.float32)


def narrowed(array: Array) -> Array:
    """FP32 as BF16, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _check_values(spec: TensorSpec, data: object) -> None:
    """Before NumPy sees them: it takes true for 1, and for texts as much memory as the longest times all.

    Raises:
        Refused: names a value that is not of the input's kind.
    """
    lists: list[list[object]] = [[data]]
    while lists:
        below: list[list[object]] = []
        for values in lists:
            if odd := set(map(type, values)) - _PYTHON[spec.datatype]:
                below += _lists(spec, values, odd)
        lists = below


def _lists(spec: TensorSpec, values: list[object], odd: set[type]) -> list[list[object]]:
    """Raises Refused: values of odd types are not all lists."""
    if odd != {list}:
        wrong = next(value for value in values if type(value) in odd - {list})
        raise Refused(f"input {spec.name!r}: expected {_kind(spec.datatype)}, got {shown(wrong)}")
    return [value for value in values if isinstance(value, list)]


def _fits_kind(datatype: Datatype, kind: str) -> bool:
    if datatype is Datatype.BOOL:
        return kind == "b"
    return kind in ("iuf" if datatype in FLOATS else "iu")


def _kind(datatype: Datatype) -> str:
    if datatype is Datatype.BOOL:
        return "true or false for BOOL"
    return f"{'numbers' if datatype in FLOATS else 'integers'} for {datatype}"


def _in_range(spec: TensorSpec, array: Array) -> Array:
    carrier = CARRIERS[spec.datatype]
    if spec.datatype is Datatype.BF16:
        return narrowed(array.astype(np.float32))
    if spec.datatype in FLOATS:
        with np.errstate(over="ignore"):
            return array.astype(carrier, copy=False)
    if carrier.kind in "iu" and array.size:
        _check_range(spec, int(array.min()), int(array.max()))
    return array.astype(carrier, copy=False)


def _check_range(spec: TensorSpec, least: int, most: int) -> None:
    limits = np.iinfo(CARRIERS[spec.datatype])
    for value in (least, most):
        if not limits.min <= value <= limits.max:
            between = f"{limits.min} to {limits.max}"
            raise Refused(f"input {spec.name!r}: {spec.datatype} holds {between}, got {value}")


def shown(value: object) -> str:
    """A client's value as a message repeats it, however large it is."""
    return reprlib.repr(value)[:_SHOWN]
