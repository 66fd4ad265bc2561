"""Ranks that depend on each other, as in collective training: all fail when one is lost.

They end when there is a file `stop`. Each rank notes when it has met rank 0, and when it loses another rank.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
EPOCH, FOLDER = int(os.environ["PADDLEWHEEL_EPOCH"]), Path(os.environ["PADDLEWHEEL_CHECKPOINT_PATH"])
FAILING_RANK = int(os.environ.get("FAILING_RANK", "-1"))
"""This rank exits once it has met rank 0."""
LEADER = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
STOP, CONNECT_INTERVAL_SECONDS = b"stop", 0.5


def note(event: str) -> None:
    line = {"event": event, "rank": RANK, "size": SIZE, "epoch": EPOCH, "at": time.time()}
    with (FOLDER / "history.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def connect() -> socket.socket:
    """To rank 0, whose program may start later."""
    host, _, port = LEADER.rpartition(":")
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(CONNECT_INTERVAL_SECONDS)


def lead() -> bool:
    """Rank 0; False when it loses another rank."""
    with socket.create_server(("", int(os.environ["PADDLE_PORT"]))) as server:
        others = [server.accept()[0] for _ in range(SIZE - 1)]
    note("met")
    while not (FOLDER / "stop").exists():
        lost, _, _ = select.select(others, [], [], CONNECT_INTERVAL_SECONDS)
        if lost:
            return False
    for other in others:
        other.sendall(STOP)
    return True


def follow() -> bool:
    """Another rank; False when it loses rank 0."""
    with connect() as leader:
        note("met")
        if RANK == FAILING_RANK:
            sys.exit(3)
        try:
            return leader.recv(len(STOP)) == STOP
        except OSError:
            return False


def main() -> None:
    if not (lead() if RANK == 0 else follow()):
        note("lost")
        sys.exit("another rank is gone")


main()
