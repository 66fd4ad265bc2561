"""Messages to the process that runs the model."""

from __future__ import annotations

import os
import pickle
import socket
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle_runtime import VERSION, frames
from paddle_runtime.domain.model import Datatype, Signature, TensorSpec
from paddle_runtime.orders import Done, Failed, Fault, Run


def frame(value: object) -> bytes:
    return b"".join(frames.encode(value))


def arrived(data: bytes, assembler: frames.Assembler, most: int = 2**20) -> list[Any]:
    """What the assembler gives for the bytes, which come in pieces of at most so many."""
    found = []
    while data:
        room = assembler.room()
        count = min(len(room), len(data), most)
        room[:count] = data[:count]
        found.append(assembler.take(count))
        data = data[count:]
    return [value for value in found if value is not None]


@pytest.mark.parametrize("piece", [1009, 2**20])
def test_arrays_arrive_as_they_were_sent(piece: int) -> None:
    sent = {"a": np.arange(300_000, dtype=np.int64).reshape(3, -1), "b": np.array(1.5), "c": np.zeros((0, 2))}
    sent["d"] = np.arange(12).reshape(3, 4)[:, ::2]
    assembler = frames.Assembler()

    (first,) = arrived(frame(Run(sent)), assembler, piece)
    (second,) = arrived(frame(Run({"b": np.array(2.5)})), assembler, piece)

    for name, array in sent.items():
        np.testing.assert_array_equal(first.inputs[name], array)
        assert first.inputs[name].dtype == array.dtype
    assert second.inputs["b"] == 2.5


def test_a_message_arrives_byte_by_byte() -> None:
    assert arrived(frame(Done("cpu")), frames.Assembler(), 1) == [Done("cpu")]


def test_arrays_begin_where_vector_instructions_like_it() -> None:
    (run,) = arrived(
        frame(Run({"a": np.zeros(3, np.int8), "b": np.ones(5), "c": np.ones(2)})), frames.Assembler()
    )

    addresses = [array.__array_interface__["data"][0] for array in run.inputs.values()]
    assert [address % 16 for address in addresses] == [0, 0, 0]


def test_small_messages_of_different_times_share_no_memory() -> None:
    assembler = frames.Assembler()
    (first,) = arrived(frame(Run({"a": np.full(4, 1.0)})), assembler)

    arrived(frame(Run({"a": np.full(4, 2.0)})), assembler)

    assert first.inputs["a"].tolist() == [1.0] * 4


def test_what_follows_a_message_is_not_taken_for_the_next() -> None:
    with pytest.raises(pickle.UnpicklingError, match="bytes came for a frame of"):
        arrived(frame(Done(1)) + frame(Done(2)), frames.Assembler())


@pytest.mark.parametrize("value", [os.system, Path("/tmp"), np.random.default_rng, frames.encode])
def test_what_is_no_message_is_not_read(value: object) -> None:
    """A model can be a program that writes what it likes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, value)
        with pytest.raises(pickle.UnpicklingError, match="is not part of a message"):
            frames.receive(ours, frames.Assembler())


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
            assert frames.receive(ours, frames.Assembler()) == value


def test_members_of_an_enum_are_read_whatever_python_wrote_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2, that of the image, writes a call of getattr."""
    monkeypatch.setattr(Datatype, "__reduce_ex__", lambda self, _: (getattr, (Datatype, self.name)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, Done([Datatype.BF16]))
        assert frames.receive(ours, frames.Assembler()) == Done([Datatype.BF16])


def test_the_end_of_the_other_side_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(b"123")
        ours.close()
        with pytest.raises(EOFError):
            frames.receive(theirs, frames.Assembler())


def test_the_version_is_that_of_the_distribution() -> None:
    project = Path(__file__).parents[3] / "services/paddle-runtime/pyproject.toml"

    assert tomllib.loads(project.read_text())["project"]["version"] == VERSION
