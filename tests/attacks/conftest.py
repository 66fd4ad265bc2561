"""The servers of all attacks of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.attacks.open_bus import opened
from tests.attacks.servers import Servers


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers with the chart's configuration, where attacks are refused."""
    with ExitStack() as ends:
        yield Servers(tmp_path_factory.mktemp("guarded"), ends)


@pytest.fixture(scope="package")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that guard nothing, where attacks succeed."""
    with ExitStack() as ends:
        yield Servers(tmp_path_factory.mktemp("unguarded"), ends, opened)
