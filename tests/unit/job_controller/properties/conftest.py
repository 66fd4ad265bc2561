"""The event loop of all observations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.job_controller.properties.controller import loop


@pytest.fixture(scope="session", autouse=True)
def close_loop() -> Iterator[None]:
    """Close the loop after the last test."""
    yield
    loop().close()
