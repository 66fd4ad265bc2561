"""A model as Paddle loads and runs it; the only importer of Paddle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from paddle_runtime.domain import joining
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.model import CARRIERS, Array, Datatype, DummyShapes, Signature, Tensors, TensorSpec
from paddle_runtime.orders import Load, Prepare

_DATATYPES: Mapping[str, Datatype] = {
    "bool": Datatype.BOOL,
    "int8": Datatype.INT8,
    "int16": Datatype.INT16,
    "int32": Datatype.INT32,
    "int64": Datatype.INT64,
    "uint8": Datatype.UINT8,
    "float16": Datatype.FP16,
    "bfloat16": Datatype.BF16,
    "float32": Datatype.FP32,
    "float64": Datatype.FP64,
}


class InvalidInputs(Exception):  # noqa: N818 - a verdict on a request, not a failure
    """Paddle refused these inputs."""


def choose_device(wanted: str) -> str:
    """`cpu` or `gpu`; imports Paddle, which takes seconds. Raises ModelFault: there is no GPU."""
    paddle = _paddle()
    has_gpu = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    if wanted == "gpu" and not has_gpu:
        remedy = "ask for a GPU in the pod's resources and use the image with Paddle for GPUs, or set cpu"
        raise ModelFault("NoDevice", f"PADDLE_RUNTIME_DEVICE is gpu, but Paddle finds none: {remedy}")
    return "gpu" if has_gpu and wanted != "cpu" else "cpu"


class PaddleModel:
    """A loaded model. Raises ModelFault: unreadable files, or a datatype without a name in the protocol."""

    def __init__(self, files: Load, setup: Prepare) -> None:
        self._inputs, self._outputs = _read_specs(files.program)
        try:
            self._predictor = _paddle().inference.create_predictor(_config(files, setup))
        except (ValueError, RuntimeError, OSError) as error:
            raise ModelFault("LoadFailed", f"{Path(files.program).name}: {_summary(error)}") from error
        by_name = {spec.name: spec for spec in self._inputs}
        self._inputs = [by_name[name] for name in self._predictor.get_input_names()]

    def warm_up(self, shapes: DummyShapes) -> Signature:
        """Run on dummies, and find out whether requests can be joined.

        Raises:
            ModelFault: the model fails on them.
        """
        self._check_shapes(shapes)
        try:
            outputs = self.run(joining.dummies(self._inputs, shapes))
        except InvalidInputs as error:
            remedy = "give the sizes of free dimensions in PADDLE_RUNTIME_WARMUP_SHAPES"
            raise ModelFault("WarmUpFailed", f"the model fails on dummy inputs: {error}; {remedy}") from error
        specs = tuple(_seen(spec, outputs[spec.name]) for spec in self._outputs)
        return Signature(tuple(self._inputs), specs, self._joins(specs, shapes))

    def run(self, inputs: Tensors) -> Tensors:
        """Outputs by name. Raises InvalidInputs."""
        try:
            found = self._predictor.run([_to_paddle(inputs[spec.name]) for spec in self._inputs])
            return {spec.name: tensor.numpy() for spec, tensor in zip(self._outputs, found, strict=True)}
        except MemoryError as error:
            raise InvalidInputs(f"there is not enough memory: {_summary(error)}") from error
        except (ValueError, RuntimeError, OSError, IndexError, TypeError, NotImplementedError) as error:
            raise InvalidInputs(_summary(error)) from error

    def _check_shapes(self, shapes: DummyShapes) -> None:
        specs = {spec.name: spec for spec in self._inputs}
        for name, shape in shapes.items():
            if name not in specs or not specs[name].admits(tuple(shape)):
                expected = specs.get(name, f"one of {', '.join(specs)}")
                message = f"PADDLE_RUNTIME_WARMUP_SHAPES: {name} {list(shape)}: expected {expected}"
                raise ModelFault("InvalidSettings", message)

    def _joins(self, outputs: Sequence[TensorSpec], shapes: DummyShapes) -> bool:
        try:
            return joining.joins(self.run, self._inputs, outputs, shapes)
        except InvalidInputs:
            return False


@cache
def _paddle() -> Any:
    with warnings.catch_warnings():
        # It looks for a compiler that only extensions need.
        warnings.simplefilter("ignore")
        import paddle
        import paddle.inference
    return paddle


def _config(files: Load, setup: Prepare) -> Any:
    config = _paddle().inference.Config(files.program, files.parameters)
    config.disable_glog_info()
    if setup.device == "gpu":
        config.enable_use_gpu(setup.gpu_memory_mib, 0)
    else:
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(setup.math_threads)
    return config


def _read_specs(program: str) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs as the program declares them: predictors tell only names before the first run."""
    read = _read_legacy if program.endswith(".pdmodel") else _read_pir
    try:
        return read(program)
    except ModelFault:
        raise
    except Exception as error:
        raise ModelFault(
            "LoadFailed", f"{Path(program).name} is not a program of Paddle: {_summary(error)}"
        ) from error


def _read_pir(path: str) -> tuple[list[TensorSpec], list[TensorSpec]]:
    paddle = _paddle()
    program = paddle.static.Program()
    paddle.base.core.deserialize_pir_program(path, program)
    inputs, outputs = [], []
    for op in program.global_block().ops:
        if op.name() in ("pd_op.data", "pd_op.feed"):
            inputs.append(_spec(op.attrs()["name"], op.results()[0]))
        elif op.name() == "pd_op.fetch":
            outputs.append(_spec(op.attrs()["name"], op.operands_source()[0]))
    return inputs, outputs


def _read_legacy(path: str) -> tuple[list[TensorSpec], list[TensorSpec]]:
    paddle = _paddle()
    paddle.enable_static()
    try:
        block = paddle.static.deserialize_program(Path(path).read_bytes()).global_block()
    finally:
        paddle.disable_static()
    inputs, outputs = [], []
    for op in block.ops:
        if op.type == "feed":
            inputs.append(_spec(op.output("Out")[0], block.var(op.output("Out")[0])))
        elif op.type == "fetch":
            outputs.append(_spec(op.input("X")[0], block.var(op.input("X")[0])))
    return inputs, outputs


def _spec(name: str, variable: Any) -> TensorSpec:
    paddle_name = str(variable.dtype).rpartition(".")[2].lower()
    datatype = _DATATYPES.get(paddle_name)
    if datatype is None:
        known = ", ".join(_DATATYPES)
        raise ModelFault("UnknownDatatype", f"{name} is of {paddle_name}; inputs and outputs can be {known}")
    return TensorSpec(name, datatype, tuple(int(size) for size in variable.shape))


def _seen(spec: TensorSpec, output: Array) -> TensorSpec:
    """Declared output, of the datatype that it really has."""
    if output.dtype == CARRIERS[spec.datatype]:
        return spec
    by_carrier = {carrier: datatype for datatype, carrier in CARRIERS.items()}
    return TensorSpec(spec.name, by_carrier[output.dtype], spec.shape)


def _to_paddle(array: Array) -> Any:
    """BF16 arrives as uint16, and that is what Paddle takes it for."""
    return _paddle().to_tensor(array)


def _summary(error: Exception) -> str:
    """The sentence that tells; Paddle surrounds it with its own call stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or line.startswith("(")] or lines or [repr(error)]
    return telling[0].partition(" (at ")[0][:500]
