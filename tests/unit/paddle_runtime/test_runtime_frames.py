"""Messages to the process that runs the model."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

from paddle_runtime import VERSION, frames
from paddle_runtime.domain.model import Datatype, Signature, TensorSpec
from paddle_runtime.orders import Done, Failed, Fault, Run


async def test_arrays_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    sent = {"a": np.arange(300_000, dtype=np.int64).reshape(3, -1), "b": np.array(1.5), "c": np.zeros((0, 2))}
    sent["d"] = np.arange(12).reshape(3, 4)[:, ::2]
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


@pytest.mark.parametrize("value", [os.system, Path("/tmp"), np.random.default_rng, frames.encode])
def test_what_is_no_message_is_not_read(value: object) -> None:
    """A model can be a program that writes what it likes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, value)
        with pytest.raises(pickle.UnpicklingError, match="is not part of a message"):
            frames.receive(ours)


def test_answers_of_every_kind_are_read() -> None:
    spec = TensorSpec("x", Datatype.BF16, (-1, 2))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for value in (
            Done(Signature((spec,), (spec,), joins=True)),
            Done("cpu"),
            Fault("A", "b"),
            Failed("c"),
        ):
            frames.send(theirs, value)
            assert frames.receive(ours) == value


def test_members_of_an_enum_are_read_whatever_python_wrote_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2, that of the image, writes a call of getattr."""
    monkeypatch.setattr(Datatype, "__reduce_ex__", lambda self, _: (getattr, (Datatype, self.name)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, Done([Datatype.BF16]))
        assert frames.receive(ours) == Done([Datatype.BF16])


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
