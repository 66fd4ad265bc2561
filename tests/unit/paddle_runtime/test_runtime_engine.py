"""The process that runs the model is replaced when the trials of the warm-up do not end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddle_runtime import engine
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.files import ModelFiles
from paddle_runtime.domain.model import Signature
from paddle_runtime.engine import PaddleProcess
from paddle_runtime.orders import Load, Order, WarmedUp, WarmUp
from paddle_runtime.ports import EngineDied


class Process(PaddleProcess):
    """A process with a model that works. `trials` is how its trials go."""

    def __init__(self, settings: PaddleRuntimeSettings, trials: str) -> None:
        super().__init__(settings)
        self.trials = trials
        self.asked: list[str] = []

    async def prepare(self) -> str:
        self.asked.append("prepare")
        return "cpu"

    async def wait_died(self) -> str:
        return "it died"

    async def _ask(self, order: Order) -> object:
        if isinstance(order, Load):
            self.asked.append("load")
            return None
        assert isinstance(order, WarmUp)
        self.asked.append("trials" if order.tries_joining else "run")
        if order.tries_joining and self.trials == "never end":
            await asyncio.Event().wait()
        if order.tries_joining and self.trials == "end the process":
            raise EngineDied("it reached the memory limit")
        return WarmedUp(Signature((), (), joins=order.tries_joining), "on", ())

    def _kill(self, reason: str) -> None:
        self.asked.append("kill")


async def begin(trials: str, *, batching: bool = True) -> Process:
    process = Process(PaddleRuntimeSettings(model_uri="file:///m", batching=batching), trials)
    await process.prepare()
    await process.load(Path("/m"), ModelFiles("inference.json", "inference.pdiparams"))
    return process


@pytest.mark.parametrize("trials", ["never end", "end the process"])
async def test_a_model_whose_trials_do_not_end_is_served_without_joining(
    monkeypatch: pytest.MonkeyPatch, trials: str
) -> None:
    monkeypatch.setattr(engine, "JOINING_TRIALS_TIMEOUT_SECONDS", 0.01)
    process = await begin(trials)
    assert not (await process.warm_up()).signature.joins
    again = ["kill", "prepare", "load", "run"]
    assert process.asked == ["prepare", "load", "run", "trials", *again]


async def test_the_trials_decide_when_they_end_and_are_left_out_without_batching() -> None:
    assert (await (await begin("end")).warm_up()).signature.joins
    process = await begin("end", batching=False)
    assert not (await process.warm_up()).signature.joins
    assert process.asked == ["prepare", "load", "run"]
