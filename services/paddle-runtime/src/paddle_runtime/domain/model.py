"""The vocabulary of this service: datatypes, tensors, inputs and outputs of a model, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_runtime.timing import FULL_RETRY_INTERVAL_SECONDS

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
"""Arrays by name. BF16 is carried as the upper 16 bits of FP32, in uint16: NumPy has no such type."""

DummyShapes = Mapping[str, Sequence[int]]
"""Shapes of the warm-up's inputs by name; other inputs have the shape of the signature."""
ANY = -1
"""A dimension of any size."""


class Datatype(StrEnum):
    """Names of the Open Inference Protocol for what Paddle has."""

    BOOL = "BOOL"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    UINT8 = "UINT8"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"


CARRIERS: Mapping[Datatype, np.dtype[Any]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.INT8: np.dtype(np.int8),
    Datatype.INT16: np.dtype(np.int16),
    Datatype.INT32: np.dtype(np.int32),
    Datatype.INT64: np.dtype(np.int64),
    Datatype.UINT8: np.dtype(np.uint8),
    Datatype.FP16: np.dtype(np.float16),
    Datatype.BF16: np.dtype(np.uint16),
    Datatype.FP32: np.dtype(np.float32),
    Datatype.FP64: np.dtype(np.float64),
}
"""How a tensor of that type is held in NumPy."""

FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. `shape` has ANY for a dimension of any size."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.datatype} {list(self.shape)}"

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape fits."""
        pairs = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(mine in (ANY, its) for mine, its in pairs)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model.

    Args:
        joins: requests may be joined along the first dimension and the answer split again.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    joins: bool = False

    def input(self, name: str) -> TensorSpec:
        """Raises Refused."""
        return _named(name, self.inputs, "input")

    def output(self, name: str) -> TensorSpec:
        """Raises Refused."""
        return _named(name, self.outputs, "output")


@dataclass(frozen=True)
class Identity:
    """The name and version of the model in addresses and answers."""

    name: str
    version: str


class InvalidInputs(Exception):  # noqa: N818 - a verdict on a request, not a failure
    """The model cannot run these inputs."""


class Refused(Exception):  # noqa: N818 - a verdict on a request, not a failure
    """The request cannot be answered; the message contains the expected and the given value.

    Args:
        status: HTTP status, 4xx or 503.
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(self, message: str, status: int = 400, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


def busy(message: str) -> Refused:
    """There is no room for the request now: 503, to be repeated after `FULL_RETRY_INTERVAL_SECONDS`."""
    return Refused(message, 503, FULL_RETRY_INTERVAL_SECONDS)


def _named(name: str, specs: tuple[TensorSpec, ...], kind: str) -> TensorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    known = ", ".join(spec.name for spec in specs)
    raise Refused(f"{kind} {name[:80]!r}: the model has no such {kind}; it has {known}")
