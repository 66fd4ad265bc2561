"""Settings that every controller has in addition to `paddlewheel.core.settings`."""

from __future__ import annotations

from pydantic import Field

from paddlewheel.core.settings import ServiceSettings


class OperatorSettings(ServiceSettings):
    """Settings of every controller. A subclass sets the prefix of the environment variables."""

    resync: float = Field(default=300.0, gt=0)
    """Seconds between two passes over all objects."""
    handler_deadline: float = Field(default=300.0, gt=0)
    """Seconds after which the handling of a bus message is late. /readyz then fails and names the durable."""
    replicas_share: bool = True
    """Whether the live replicas, which hold a Lease each, share the objects."""
