"""Finds out by trials whether requests to a model may be joined, and makes the inputs of the warm-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from paddle_runtime.domain import batches, tensors
from paddle_runtime.domain.model import (
    ANY,
    CARRIERS,
    FLOATS,
    Array,
    Datatype,
    DummyShapes,
    InvalidInputs,
    Tensors,
    TensorSpec,
)

Run = Callable[[Tensors], Tensors]
"""Runs the model. Raises InvalidInputs."""

_ROWS = (1, 2)
"""Numbers of rows of the two requests that are run together."""
_CLOSE = {Datatype.FP32: 1e-4, Datatype.FP64: 1e-4, Datatype.FP16: 1e-2, Datatype.BF16: 5e-2}
"""The share of an output's largest value by which batches of another size may differ; other datatypes may
not differ."""


class _Values(Enum):
    """The values of a trial. Each has two variants, so that a row can get different neighbours."""

    USUAL = "usual"
    """Floats from 0 to 1, integers 0 and 1. Other integers may be indices out of the model's range."""
    WIDE = "wide"
    """The usual values beside large ones of both signs. Integers of 16 bits and more are 0 and 1."""
    INDICES = "indices"
    """The usual values, and larger integers."""
    REPEATED = "repeated"
    """All elements are 0 beside all elements are 1."""


_LARGE = {Datatype.FP16: 1e3, Datatype.INT8: 127, Datatype.UINT8: 255, Datatype.BOOL: 1}
"""The largest wide value by datatype; other floats have _LARGE_FLOAT."""
_LARGE_FLOAT, _LARGE_INDEX = 1e6, 99
_INDICES = frozenset({Datatype.INT16, Datatype.INT32, Datatype.INT64})


@dataclass(frozen=True)
class Trials:
    """A model whose rows are tried.

    Args:
        tries_indices: whether integers above 1 are tried. On a GPU an index out of range ends the process.
    """

    run: Run
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    shapes: DummyShapes
    tries_indices: bool = True

    def joins(self) -> bool:
        """Whether requests get the same answers together as apart, independent of each other.

        Batches of equal size are computed alike, so independent rows get the same bits beside any other rows.
        A model whose rows are alike in spite of different usual inputs is not joined, because it might mix
        them. Neither is a model that refuses an input of the trials, unless the input is a larger integer.
        """
        if not all(spec.shape[:1] == (ANY,) for spec in [*self.inputs, *self.outputs]):
            return False
        try:
            return (
                self._is_usual()
                and self._is_independent(_Values.WIDE)
                and self._is_independent(_Values.REPEATED)
                and self._is_independent_of_indices()
            )
        except InvalidInputs:
            return False

    def _is_usual(self) -> bool:
        together = self._together(_Values.USUAL)
        apart = [self.run(self._probe(_Values.USUAL, rows, variant)) for variant, rows in enumerate(_ROWS)]
        # Labels follow from scores, and most often all probes get the same label.
        scores = [spec for spec in self.outputs if spec.datatype in FLOATS] or self.outputs
        for spec in self.outputs:
            batch = [_numbers(spec, found) for found in together]
            alone = [_numbers(spec, found) for found in apart]
            if not (_is_independent(batch) and _is_same(spec, batch[1], alone)):
                return False
            if spec in scores and not _is_distinct(batch):
                return False
        return True

    def _is_independent(self, values: _Values) -> bool:
        together = self._together(values)
        return all(_is_independent([_numbers(spec, found) for found in together]) for spec in self.outputs)

    def _is_independent_of_indices(self) -> bool:
        if not self.tries_indices or not any(spec.datatype in _INDICES for spec in self.inputs):
            return True
        try:
            return self._is_independent(_Values.INDICES)
        except InvalidInputs:
            # The model has fewer words, classes or positions, so no request can contain these integers.
            return True

    def _together(self, values: _Values) -> list[Tensors]:
        """Outputs of three batches of two requests: variants 0 and 0, 0 and 1, 1 and 1."""
        variants = ((0, 0), (0, 1), (1, 1))
        pairs = ([self._probe(values, *one) for one in zip(_ROWS, two, strict=True)] for two in variants)
        return [self.run(batches.join(pair)) for pair in pairs]

    def _probe(self, values: _Values, rows: int, variant: int) -> Tensors:
        chance = np.random.default_rng([rows, variant])
        made: dict[str, Array] = {}
        for spec in self.inputs:
            shape = [rows, *_shape(spec, self.shapes)[1:]]
            numbers = np.empty(shape)
            for number, row in enumerate(numbers.reshape(rows, -1)):
                row[:] = _row(spec.datatype, values, variant, len(row), number, chance)
            made[spec.name] = _carried(spec, numbers)
        return made


def dummies(inputs: Sequence[TensorSpec], shapes: DummyShapes) -> Tensors:
    """Inputs that most models accept: free sizes are 1, and integers are 0 because they may be indices."""
    chance = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for spec in inputs:
        shape = _shape(spec, shapes)
        made[spec.name] = _carried(spec, chance.random(shape) if spec.datatype in FLOATS else np.zeros(shape))
    return made


def _shape(spec: TensorSpec, shapes: DummyShapes) -> list[int]:
    return [max(size, 1) for size in shapes.get(spec.name, spec.shape)]


def _carried(spec: TensorSpec, numbers: Array) -> Array:
    if spec.datatype is Datatype.BF16:
        return tensors.narrowed(numbers)
    return numbers.astype(CARRIERS[spec.datatype])


def _row(
    datatype: Datatype, values: _Values, variant: int, width: int, number: int, chance: np.random.Generator
) -> Array:
    """The values of one row, as FP64."""
    if values is _Values.REPEATED:
        return np.full(width, float(variant))
    if variant and values is _Values.INDICES and datatype in _INDICES:
        return chance.integers(_LARGE_INDEX // 2, _LARGE_INDEX + 1, width).astype(float)
    if variant and values is _Values.WIDE and datatype not in _INDICES:
        large = _LARGE.get(datatype, _LARGE_FLOAT) * (1 + chance.random(width)) / 2
        is_signed = datatype not in (Datatype.UINT8, Datatype.BOOL)
        # Two rows of one element have both signs.
        return large * (-1.0) ** (np.arange(width) + number) if is_signed else large
    if datatype in FLOATS:
        return chance.random(width)
    bits = chance.integers(0, 2, width).astype(float)
    bits[:1] = variant
    return bits


def _numbers(spec: TensorSpec, found: Tensors) -> Array:
    array = found[spec.name]
    return tensors.widened(array) if spec.datatype is Datatype.BF16 else array


def _is_independent(together: Sequence[Array]) -> bool:
    """Whether each row has the same bits beside other neighbours, by the three batches of one output."""
    first, second, third = together
    if not first.shape == second.shape == third.shape or first.shape[:1] != (sum(_ROWS),):
        return False
    end = _ROWS[0]
    return _is_equal(first[:end], second[:end]) and _is_equal(second[end:], third[end:])


def _is_distinct(together: Sequence[Array]) -> bool:
    """Whether every row changes with its own input."""
    first, second, third = together
    end = _ROWS[0]
    return _is_changed(second[:end], third[:end]) and _is_changed(first[end:], second[end:])


def _is_changed(before: Array, after: Array) -> bool:
    """Whether each row differs; NaN is equal to NaN."""
    differs = (before != after) & ~(np.isnan(before) & np.isnan(after))
    return bool(differs.reshape(len(differs), -1).any(axis=1).all())


def _is_equal(before: Array, after: Array) -> bool:
    return np.array_equal(before, after, equal_nan=True)


def _is_same(spec: TensorSpec, together: Array, apart: Sequence[Array]) -> bool:
    """Whether a batch has the rows of its requests, which are close for floats."""
    if [array.shape for array in apart] != [(rows, *together.shape[1:]) for rows in _ROWS]:
        return False
    alone = np.concatenate(apart)
    share = _CLOSE.get(spec.datatype)
    if share is None:
        return _is_equal(together, alone)
    finite = np.abs(alone[np.isfinite(alone)])
    limit = share * float(finite.max(initial=0))
    return np.allclose(together, alone, rtol=0, atol=limit, equal_nan=True)
