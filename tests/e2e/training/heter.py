"""Says what Paddle's role maker understands of its place in a heter job.

Trainers end when they have reached all others.
"""
# Paddle is in the image, not on the developer's machine.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence

import paddle
from paddle.distributed import fleet

SERVER_TIMEOUT_SECONDS = 60


def listen() -> None:
    """For ever, as Paddle's own servers and heterogeneous workers do: the job's end ends them."""
    with socket.create_server(("", int(os.environ["PADDLE_PORT"]))) as server:
        while True:
            server.accept()[0].close()


def reach(endpoints: Sequence[str]) -> None:
    """Raises OSError when one does not listen in time."""
    deadline = time.monotonic() + SERVER_TIMEOUT_SECONDS
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def main() -> None:
    paddle.enable_static()
    maker = fleet.PaddleCloudRoleMaker(is_collective=False)
    fleet.init(maker)
    is_server, is_heter = maker._is_server(), maker._is_heter_worker()
    place = {
        "index": maker._role_id(),
        "server": is_server,
        "heter": is_heter,
        "servers": maker._get_pserver_endpoints(),
        "trainers": maker._get_trainer_endpoints(),
        "next": [] if is_server else maker._get_next_trainers(),
        "previous": [] if is_server else maker._get_previous_trainers(),
        "stages": [] if is_server else list(maker._get_stage_trainers()),
    }
    print("role", json.dumps(place))
    if is_server or is_heter:
        listen()
    reach([*place["servers"], *place["next"]])


main()
