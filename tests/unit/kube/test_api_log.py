"""Output is split into lines, independent of the borders of chunks. No line is too long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from paddlewheel.kube.api_log import LONGEST, log_lines


async def lines_of(chunks: Iterable[bytes]) -> list[bytes]:
    async def each() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [line async for line in log_lines(each())]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_line_feeds_and_carriage_returns_end_lines_wherever_chunks_are_cut(size: int) -> None:
    text = b"one\r\n\n 10%\r 20%\r\rlast\r"
    expected = [b"one\r\n", b"\n", b" 10%\r", b" 20%\r", b"\r", b"last\r"]
    assert await lines_of(text[i : i + size] for i in range(0, len(text), size)) == expected


async def test_a_line_without_an_end_is_cut() -> None:
    chunk = b"x" * (LONGEST // 4)
    lines = await lines_of([chunk] * 9)
    assert [len(line) for line in lines] == [LONGEST, LONGEST, LONGEST // 4]
