"""The same bus on a real server as the tests of the bus have."""

from tests.integration.bus.conftest import bus

__all__ = ["bus"]
