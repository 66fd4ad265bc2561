"""Messages to the process that runs the model."""

from __future__ import annotations

import asyncio
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

from paddle_runtime import VERSION, frames
from paddle_runtime.orders import Done, Run


async def test_arrays_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    sent = {"a": np.arange(300_000, dtype=np.int64).reshape(3, -1), "b": np.array(1.5), "c": np.zeros((0, 2))}
    with theirs:
        writer.writelines(frames.encode(Run(sent)))
        received = await asyncio.to_thread(frames.receive, theirs)
        answering = asyncio.create_task(asyncio.to_thread(frames.send, theirs, Done(received.inputs)))
        answer = await frames.read(reader)
        await answering
    writer.close()
    await writer.wait_closed()

    for name, array in sent.items():
        np.testing.assert_array_equal(answer.value[name], array)
        assert answer.value[name].dtype == array.dtype


async def test_the_end_of_the_other_side_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    theirs.sendall(b"123")
    theirs.close()

    with pytest.raises(asyncio.IncompleteReadError):
        await frames.read(reader)
    writer.close()
    await writer.wait_closed()

    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(EOFError):
        frames.receive(theirs)


def test_the_version_is_that_of_the_distribution() -> None:
    project = Path(__file__).parents[3] / "services/paddle-runtime/pyproject.toml"

    assert tomllib.loads(project.read_text())["project"]["version"] == VERSION
