"""Trains a linear model with Paddle and gloo, in any number of workers, from its last checkpoint.

It ends when there is a file `stop`, or after STEPS. Rank 0 keeps a line of every step beside the checkpoint.
"""
# Paddle is in the image, not on the developer's machine.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist

FEATURES, SAMPLES, EVERY, PAUSE = 8, 64, 5, 0.1
RANK, SIZE = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
EPOCH, FOLDER = int(os.environ["PADDLEWHEEL_EPOCH"]), Path(os.environ["PADDLEWHEEL_CHECKPOINT_PATH"])
STEPS = float(os.environ.get("STEPS", "inf"))
STATE, HISTORY, STOP = FOLDER / "state.pdparams", FOLDER / "history.jsonl", FOLDER / "stop"


def mean(value: paddle.Tensor) -> paddle.Tensor:
    """Over all workers."""
    if SIZE > 1:
        dist.all_reduce(value)
    return value / SIZE


def loss_of(model: paddle.nn.Layer, *seed: int) -> paddle.Tensor:
    """On samples that the seed gives."""
    inputs = np.random.default_rng(seed).normal(size=(SAMPLES, FEATURES)).astype("float32")
    wanted = inputs @ np.arange(FEATURES, dtype="float32")[:, None]
    return ((model(paddle.to_tensor(inputs)) - paddle.to_tensor(wanted)) ** 2).mean()


def train_step(model: paddle.nn.Layer, optimizer: paddle.optimizer.Optimizer, step: int) -> None:
    """On other samples in each step and worker."""
    loss_of(model, step, RANK).backward()
    for parameter in model.parameters():
        parameter.grad.set_value(mean(parameter.grad))
    optimizer.step()
    optimizer.clear_grad()


def save(model: paddle.nn.Layer, step: int) -> None:
    """Whole, or not at all."""
    draft = STATE.with_suffix(".draft")
    paddle.save({"model": model.state_dict(), "step": step}, str(draft))
    draft.rename(STATE)


def note(**line: float) -> None:
    with HISTORY.open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    if SIZE > 1:
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
        dist.init_parallel_env()
    paddle.seed(0)
    model = paddle.nn.Linear(FEATURES, 1)
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    step = 0
    if STATE.exists():
        state = paddle.load(str(STATE))
        model.set_state_dict(state["model"])
        step = state["step"]
    begun, is_told = step, False
    while not is_told:
        train_step(model, optimizer, step)
        step += 1
        if RANK == 0:
            # Always on the same samples: only the model changes it.
            note(epoch=EPOCH, size=SIZE, begun=begun, step=step, loss=float(loss_of(model, 0)))
            if step % EVERY == 0:
                save(model, step)
        is_told = float(mean(paddle.to_tensor(float(STOP.exists())))) > 0 or step >= STEPS
        time.sleep(PAUSE)


main()
