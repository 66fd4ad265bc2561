"""Ports to listen on, on a real loopback."""

from __future__ import annotations

import socket

import pytest

from paddlewheel.core import sockets
from paddlewheel.core.sockets import free_ports


def ephemeral() -> range:
    """Ports the kernel gives to outgoing connections."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:  # noqa: PTH123 - no path of ours
        first, last = map(int, file.read().split())
    return range(first, last + 1)


def test_ports_are_different_and_no_outgoing_connection_takes_them_or_their_twins() -> None:
    ports = free_ports(200)
    assert len(set(ports)) == 200
    assert not {port for port in ports if port in ephemeral() or port + 10_000 in ephemeral()}


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(1)[0]
    monkeypatch.setattr(sockets, "_RANGE", range(port, port + 1))
    assert free_ports(1) == [port]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="cannot find 1 free ports"):
            free_ports(1)
