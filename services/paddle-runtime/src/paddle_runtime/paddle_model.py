"""A model as Paddle loads and runs it; the only importer of Paddle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from paddle_runtime.domain import joining
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.model import (
    ANY,
    CARRIERS,
    Array,
    Datatype,
    DummyShapes,
    InvalidInputs,
    Signature,
    Tensors,
    TensorSpec,
)
from paddle_runtime.orders import Load, Prepare, WarmedUp

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


class OneDnn(StrEnum):
    """How much of a model oneDNN runs on a CPU, in the order in which it is tried.

    Paddle uses oneDNN by default. In 3.3.1 it cannot run programs of the format `.json` that have operations
    with lists of floats, such as interpolations (Paddle#77340).
    """

    ON = "on"
    PARTIAL = "without onednn_placement_pass"
    OFF = "off"


def choose_device(wanted: str) -> str:
    """`cpu` or `gpu`; imports Paddle, which takes seconds. Raises ModelFault: there is no GPU."""
    paddle = _paddle()
    has_gpu = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    if wanted == "gpu" and not has_gpu:
        advice = "ask for a GPU in the pod's resources and use the image with Paddle for GPUs, or set cpu"
        raise ModelFault("NoDevice", f"PADDLE_RUNTIME_DEVICE is gpu, but Paddle finds none: {advice}")
    return "gpu" if has_gpu and wanted != "cpu" else "cpu"


class PaddleModel:
    """A loaded model. Raises ModelFault: unreadable files, or a datatype without a name in the protocol."""

    def __init__(self, files: Load, setup: Prepare) -> None:
        self._files, self._setup = files, setup
        self._inputs, self._outputs = _read_specs(files)
        self._untried = _choices(files, setup)
        self._faults: list[str] = []
        self._create()
        by_name = {spec.name: spec for spec in self._inputs}
        self._inputs = [by_name[name] for name in self._predictor.get_input_names()]

    def _create(self) -> None:
        """Load the model with the next use of oneDNN that Paddle can load it with. Raises ModelFault."""
        while True:
            # The memory may be too small for the weights of two predictors.
            self._predictor: Any = None
            self._onednn = self._untried.pop(0)
            try:
                config = _config(self._files, self._setup, self._onednn)
                self._predictor = _paddle().inference.create_predictor(config)
                return
            except (ValueError, RuntimeError, OSError) as error:
                message = f"{Path(self._files.program).name}: {_summary(error)}"
                if not self._untried:
                    raise ModelFault("LoadFailed", message) from error
                self._faults.append(f"oneDNN {self._onednn}: {message}")

    def warm_up(self, shapes: DummyShapes, *, tries_joining: bool) -> WarmedUp:
        """Run on dummies, with less of oneDNN when that fails. Find out whether requests can be joined.

        Raises:
            ModelFault: the model fails on the dummies with each use of oneDNN.
        """
        self._check_shapes(shapes)
        outputs = self._first_run(shapes)
        specs = tuple(_with_datatype(spec, outputs[spec.name]) for spec in self._outputs)
        # On a GPU, an index out of range ends the process.
        tries_indices = self._setup.device == "cpu"
        trials = joining.Trials(self.run, self._inputs, specs, shapes, tries_indices)
        signature = Signature(tuple(self._inputs), specs, tries_joining and trials.joins())
        return WarmedUp(signature, self._onednn.value, tuple(self._faults))

    def _first_run(self, shapes: DummyShapes) -> Tensors:
        """Outputs for dummies. Raises ModelFault."""
        dummies = joining.dummies(self._inputs, shapes)
        while True:
            try:
                return self.run(dummies)
            except InvalidInputs as error:
                self._faults.append(f"oneDNN {self._onednn}: {error}")
                if not self._untried:
                    raise ModelFault("WarmUpFailed", self._explained(error, dummies, shapes)) from error
            self._create()

    def _explained(self, error: InvalidInputs, dummies: Tensors, shapes: DummyShapes) -> str:
        given = ", ".join(f"{name} {list(array.shape)}" for name, array in dummies.items())
        tried = " with and without oneDNN" if len(self._faults) > 1 else ""
        message = f"the model fails on inputs of the shapes {given}{tried}: {error}"
        is_guessed = any(ANY in spec.shape and spec.name not in shapes for spec in self._inputs)
        if not is_guessed or isinstance(error.__cause__, NotImplementedError | MemoryError):
            return message
        return f"{message}; if these shapes are too small for it, set PADDLE_RUNTIME_WARMUP_SHAPES"

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


@cache
def _paddle() -> Any:
    with warnings.catch_warnings():
        # It looks for a compiler that only extensions need.
        warnings.simplefilter("ignore")
        import paddle
        import paddle.inference
    return paddle


def _choices(files: Load, setup: Prepare) -> list[OneDnn]:
    """The uses of oneDNN to try; only OFF where Paddle has no oneDNN for the device."""
    config = _paddle().inference.Config(files.program, files.parameters)
    if setup.device == "gpu" or not config.onednn_enabled():
        return [OneDnn.OFF]
    return [OneDnn.ON, OneDnn.OFF] if _is_legacy(files) else list(OneDnn)


def _config(files: Load, setup: Prepare, onednn: OneDnn) -> Any:
    config = _paddle().inference.Config(files.program, files.parameters)
    config.disable_glog_info()
    if setup.device == "gpu":
        config.enable_use_gpu(setup.gpu_memory_mib, 0)
    else:
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(setup.math_threads)
        if onednn is OneDnn.PARTIAL:
            config.delete_pass("onednn_placement_pass")
        elif onednn is OneDnn.OFF:
            config.disable_onednn()
    if _is_legacy(files):
        # Programs of the format `.json` have no such pass, and Paddle refuses them with it.
        config.enable_memory_optim()
    return config


def _is_legacy(files: Load) -> bool:
    return files.program.endswith(".pdmodel")


def _read_specs(files: Load) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs as the program declares them: before the first run, predictors have only names."""
    program = files.program
    try:
        return _read_legacy(program) if _is_legacy(files) else _read_pir(program)
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


def _with_datatype(spec: TensorSpec, output: Array) -> TensorSpec:
    """The declared output with the datatype that the model returned."""
    if output.dtype == CARRIERS[spec.datatype]:
        return spec
    by_carrier = {carrier: datatype for datatype, carrier in CARRIERS.items()}
    return TensorSpec(spec.name, by_carrier[output.dtype], spec.shape)


def _to_paddle(array: Array) -> Any:
    """BF16 arrives as uint16, and that is what Paddle takes it for."""
    return _paddle().to_tensor(array)


def _summary(error: Exception) -> str:
    """The sentence with the cause; Paddle surrounds it with its own call stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error:" in line or line.startswith("(")] or lines or [repr(error)]
    return causes[0].partition(" (at ")[0].strip()[:500]
