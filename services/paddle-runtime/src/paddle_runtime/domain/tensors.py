"""Tensors to and from the wire: JSON lists and little-endian bytes."""

from __future__ import annotations

from math import prod

import numpy as np

from paddle_runtime.domain.model import CARRIERS, FLOATS, Array, Datatype, Refused, TensorSpec

_SHOWN = 60
"""Characters of a client's value that a message repeats."""


def check(spec: TensorSpec, datatype: str, shape: tuple[int, ...]) -> None:
    """Raises Refused: the tensor that a client announces is not what the model takes."""
    came = f"{datatype[:_SHOWN]} {list(shape)}"
    if datatype != spec.datatype or not spec.admits(shape) or 0 in shape:
        raise Refused(f"input {spec.name!r}: expected {spec}{_note(spec)}, got {came}")


def _note(spec: TensorSpec) -> str:
    return " (-1: any size from 1)" if -1 in spec.shape else ""


def from_json(spec: TensorSpec, shape: tuple[int, ...], data: object) -> Array:
    """A nested or flat list of numbers (of booleans, for BOOL) in row-major order. Raises Refused."""
    if not isinstance(data, list):
        raise Refused(f"input {spec.name!r}: data must be a list of values, got {_shown(data)}")
    array = _numbers(spec, data)
    if array.size != prod(shape):
        wanted = f"{prod(shape)} values for shape {list(shape)}"
        raise Refused(f"input {spec.name!r}: expected {wanted}, got {array.size}")
    return array.reshape(shape)


def cast_json(spec: TensorSpec, data: object) -> Array:
    """Numbers of any nesting with the shape they have. Raises Refused."""
    return _numbers(spec, data)


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
    """What `orjson` writes as numbers: contiguous, native, BF16 widened to FP32."""
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


def _numbers(spec: TensorSpec, data: object) -> Array:
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise Refused(f"input {spec.name!r}: data is ragged: every row must have the same length") from None
    if array.size and not _fits_kind(spec.datatype, array.dtype.kind):
        found = _odd_one(spec, data) or "integers beyond 64 bits"
        raise Refused(f"input {spec.name!r}: expected {_kind(spec.datatype)}, got {found}")
    return _in_range(spec, array)


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


def _odd_one(spec: TensorSpec, data: object) -> str:
    """The first value that is of the wrong kind."""
    if isinstance(data, list):
        return next((found for item in data if (found := _odd_one(spec, item))), "")
    allowed = (int, float) if spec.datatype in FLOATS else int
    is_odd = isinstance(data, bool) != (spec.datatype is Datatype.BOOL) or not isinstance(data, allowed)
    return _shown(data) if is_odd else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
