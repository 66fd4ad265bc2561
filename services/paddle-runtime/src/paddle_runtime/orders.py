"""What the server asks of the process that runs the model, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddle_runtime.domain.model import DummyShapes, Tensors


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
    """Run the model on dummies; the answer is its Signature."""

    shapes: DummyShapes = field(default_factory=dict)


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
