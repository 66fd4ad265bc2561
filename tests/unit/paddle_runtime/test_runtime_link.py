"""The server's end of the connection to the process that runs the model."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator

import numpy as np
import pytest

from paddle_runtime import frames
from paddle_runtime.engine import Link
from paddle_runtime.orders import Done, Run


@pytest.fixture
async def connection() -> AsyncIterator[tuple[Link, socket.socket]]:
    """The link, and what the process has."""
    ours, theirs = socket.socketpair()
    transport, link = await asyncio.get_running_loop().create_connection(Link, sock=ours)
    with theirs:
        yield link, theirs
    transport.abort()


def _echo(theirs: socket.socket) -> None:
    assembler = frames.Assembler()
    for _ in range(2):
        frames.send(theirs, Done(frames.receive(theirs, assembler).inputs))


async def test_orders_are_answered_one_after_the_other(connection: tuple[Link, socket.socket]) -> None:
    link, theirs = connection
    process = asyncio.create_task(asyncio.to_thread(_echo, theirs))
    sent = [Run({"x": np.arange(size)}) for size in (500_000, 3)]

    for order in sent:
        answer = await asyncio.wait_for(link.ask(order), 10)
        assert isinstance(answer, Done)
        np.testing.assert_array_equal(answer.value["x"], order.inputs["x"])  # type: ignore[index]
    await process


async def test_what_is_no_message_fails_the_order_and_ends_the_connection(
    connection: tuple[Link, socket.socket],
) -> None:
    link, theirs = connection
    asked = asyncio.create_task(link.ask(Run({})))
    await asyncio.to_thread(frames.receive, theirs, frames.Assembler())

    theirs.sendall(b"\0" * 64)

    with pytest.raises(pickle.UnpicklingError):
        await asyncio.wait_for(asked, 10)
    assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_an_answer_that_nobody_asked_for_ends_the_connection(
    connection: tuple[Link, socket.socket],
) -> None:
    """It would be taken for the answer to the next order."""
    link, theirs = connection

    frames.send(theirs, Done(1))

    assert await asyncio.to_thread(theirs.recv, 1) == b""
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(link.ask(Run({})), 10)


async def test_a_process_that_ends_fails_its_order_and_all_that_follow(
    connection: tuple[Link, socket.socket],
) -> None:
    link, theirs = connection
    asked = asyncio.create_task(link.ask(Run({})))
    await asyncio.to_thread(frames.receive, theirs, frames.Assembler())

    theirs.close()

    for order in (asked, link.ask(Run({}))):
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(order, 10)
