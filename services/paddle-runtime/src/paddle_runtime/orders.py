"""Requests of the server to the process that runs the model, and the answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddle_runtime.domain.model import DummyShapes, Signature, Tensors


@dataclass(frozen=True)
class Prepare:
    """Import Paddle; the answer is the device, `cpu` or `gpu`."""

    device: str
    math_threads: int
    gpu_memory_mib: int


@dataclass(frozen=True)
class Load:
    """Read the model from files; `parameters` is "" for a model without weights. The answer is None."""

    program: str
    parameters: str


@dataclass(frozen=True)
class WarmUp:
    """Run the model on dummies, and try whether requests can be joined; the answer is WarmedUp."""

    shapes: DummyShapes = field(default_factory=dict)
    tries_joining: bool = True


@dataclass(frozen=True)
class WarmedUp:
    """A model that ran.

    Args:
        onednn: `on`, `off`, or the part that is left out.
        faults: why the model did not run with more of oneDNN.
    """

    signature: Signature
    onednn: str = "off"
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """Run the model; the answer is its outputs."""

    inputs: Tensors


Order = Prepare | Load | WarmUp | Run


@dataclass(frozen=True)
class Done:
    """The answer to an order."""

    value: object


@dataclass(frozen=True)
class Fault:
    """The model cannot be served: a ModelFault of the server."""

    reason: str
    message: str


@dataclass(frozen=True)
class Failed:
    """These inputs cannot be run; the next ones may."""

    message: str


Answer = Done | Fault | Failed
