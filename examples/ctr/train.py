"""Trains a small wide & deep model that predicts clicks (CTR), with Paddle's parameter servers.

Servers and trainers all run this file; job-controller gives each its role and addresses (TRAINING_ROLE,
POD_IP, PADDLE_PORT, PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINER_ENDPOINTS). The servers hold the parameters
and run until they are deleted, when the trainers have ended. Every trainer prints lines `progress {...}`;
trainer 0 writes its metrics to the termination message, from which they reach the PaddleJob's
`status.results`.
"""
# Paddle is in the image, not on the developer's machine.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

# Paddle's parameter servers take programs of the former kind only. It reads this when it is imported.
os.environ.setdefault("FLAGS_enable_pir_api", "0")

import numpy as np
import paddle
from paddle.distributed import fleet

STEPS, BATCH, EVERY = int(os.environ.get("STEPS", "100")), 256, 10
ADS, USERS, WIDTH = 20, 50, 8
CROSSED, SERVERS_TIMEOUT_SECONDS = ADS * USERS, 60
TERMINATION_MESSAGE = Path("/dev/termination-log")
Batch = dict[str, np.ndarray]


def make_batch(*seed: int) -> Batch:
    """Invented views and clicks, in which some users like some ads."""
    draw = np.random.default_rng(seed)
    user, ad = draw.integers(USERS, size=(BATCH, 1)), draw.integers(ADS, size=(BATCH, 1))
    likes = np.sin(user) + np.cos(ad) + 2 * ((user + ad) % 2) - 1
    clicked = draw.random((BATCH, 1)) < 1 / (1 + np.exp(-2 * likes))
    return {"user": user, "ad": ad, "cross": user * ADS + ad, "click": clicked.astype("float32")}


def embed(ids: paddle.Tensor, size: int, width: int) -> paddle.Tensor:
    """Rows of a table that is spread over the servers."""
    table = paddle.static.nn.embedding(ids, size=[size, width], is_sparse=True)
    return paddle.reshape(table, [-1, width])


def wide_and_deep() -> paddle.Tensor:
    """The mean loss of a batch."""
    user, ad, cross = (paddle.static.data(name, [None, 1], "int64") for name in ("user", "ad", "cross"))
    click = paddle.static.data("click", [None, 1], "float32")
    deep = paddle.concat([embed(user, USERS, WIDTH), embed(ad, ADS, WIDTH)], axis=1)
    deep = paddle.static.nn.fc(deep, 16, activation="relu")
    answer = paddle.static.nn.fc(deep, 1) + embed(cross, CROSSED, 1)
    return paddle.nn.functional.binary_cross_entropy_with_logits(answer, click)


def wait_for(server: str) -> None:
    """Wait until the server listens: Paddle's trainers fail when they start before the servers."""
    host, _, port = server.rpartition(":")
    deadline = time.monotonic() + SERVERS_TIMEOUT_SECONDS
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def train(executor: paddle.static.Executor, loss: paddle.Tensor) -> dict[str, float]:
    """Metrics: the mean loss of the first and of the last steps, each on other samples in each trainer."""
    losses: list[float] = []
    for step in range(1, STEPS + 1):
        feed = make_batch(step, fleet.worker_index())
        [value] = executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
        losses.append(float(value))
        if step % EVERY == 0:
            print(
                "progress",
                json.dumps({"step": step, "steps": STEPS, "loss": round(np.mean(losses[-EVERY:]), 4)}),
            )
    return {
        "first_loss": float(np.mean(losses[:EVERY])),
        "loss": float(np.mean(losses[-EVERY:])),
        "steps": STEPS,
    }


def main() -> None:
    paddle.enable_static()
    paddle.seed(0)
    fleet.init(is_collective=False)
    loss = wide_and_deep()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    for server in fleet.server_endpoints():
        wait_for(server)
    executor = paddle.static.Executor()
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    metrics = train(executor, loss)
    fleet.stop_worker()
    if fleet.is_first_worker() and TERMINATION_MESSAGE.exists():
        TERMINATION_MESSAGE.write_text(json.dumps(metrics))


if __name__ == "__main__":
    main()
