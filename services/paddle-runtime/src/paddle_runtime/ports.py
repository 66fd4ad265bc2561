"""The interfaces that this service uses: the files of a store, and an engine that runs models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from paddle_runtime.domain.files import ModelFiles
from paddle_runtime.domain.model import Tensors
from paddle_runtime.orders import WarmedUp
from paddlewheel.core.errors import PaddlewheelError


@dataclass(frozen=True)
class StoredFile:
    """One object of a model. `tag` changes with its content; "" in a store that gives none."""

    path: str
    size: int
    tag: str
    modified: datetime


class FileStore(Protocol):
    """The files below one prefix. Methods raise Retry or ModelFault."""

    async def list(self) -> Sequence[StoredFile]:
        """All of them, with paths relative to the prefix."""
        ...

    def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
        """One file's content from `offset` on, in pieces. Raises Retry, also if it is not the listed one."""
        ...


class Predictor(Protocol):
    """A model that runs, one request at a time."""

    async def run(self, inputs: Tensors) -> Tensors:
        """Outputs by name.

        Raises:
            InferenceFailed: the model refused these values.
            EngineDied: the process that runs the model has ended.
        """
        ...


class Engine(Predictor, Protocol):
    """Runs a model. Methods raise ModelFault and EngineDied."""

    async def prepare(self) -> str:
        """Start; gives the device, `cpu` or `gpu`."""
        ...

    async def load(self, directory: Path, files: ModelFiles) -> None:
        """Read the model."""
        ...

    async def warm_up(self) -> WarmedUp:
        """Run the model on dummies."""
        ...

    async def wait_died(self) -> str:
        """Return the cause when the process that runs the model has ended."""
        ...

    async def stop(self) -> None:
        """End it."""
        ...


class InferenceFailed(Exception):  # noqa: N818 - a verdict on a request, not a failure
    """The model cannot run these values."""


class EngineDied(PaddlewheelError):  # noqa: N818 - an event
    """The process that runs the model ended by itself."""
