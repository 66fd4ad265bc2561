"""Unit tests touch nothing: a socket other than asyncio's own pair is an error."""

from __future__ import annotations

import pytest
from pytest_socket import disable_socket


def pytest_runtest_setup(item: pytest.Item) -> None:
    """pytest-socket takes the block away again when the test ends."""
    disable_socket(allow_unix_socket=True)
