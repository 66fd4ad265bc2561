"""Frames are as NATS's protocol has them, and nobody can smuggle a command into one."""

from __future__ import annotations

import pytest

from paddlewheel.bus.nats.frames import header_block, publish_frame
from paddlewheel.core.errors import Permanent


def test_a_frame_with_headers() -> None:
    block = header_block({"ce-id": "u/1", "Nats-Msg-Id": " ä "})
    assert block == "NATS/1.0\r\nce-id: u/1\r\nNats-Msg-Id: ä\r\n\r\n".encode()
    frame = publish_frame("a.b", b"_INBOX.1", block, b"{}")
    assert frame == b"HPUB a.b _INBOX.1 %d %d\r\n%b{}\r\n" % (len(block), len(block) + 2, block)


def test_a_frame_without_headers() -> None:
    assert publish_frame("a.b", b"_INBOX.1", header_block({}), b"xyz") == b"PUB a.b _INBOX.1 3\r\nxyz\r\n"


@pytest.mark.parametrize("value", ["a\r\nPUB x 0\r\n\r\n", "a\nb", "a\rb"])
def test_breaks_in_a_value_become_spaces(value: str) -> None:
    block = header_block({"reason": value})
    assert block.count(b"\r\n") == block.count(b"\n") == block.count(b"\r") == 3


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(Permanent, match="header name"):
        header_block({name: "x"})


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0", "a\t"])
def test_a_subject_that_would_break_the_protocol_is_refused(subject: str) -> None:
    with pytest.raises(Permanent, match="subject"):
        publish_frame(subject, b"r", b"", b"")
