"""Settings that every controller reads beside those of `paddlewheel.core.settings`."""

from __future__ import annotations

from pydantic import Field

from paddlewheel.core.settings import ServiceSettings


class OperatorSettings(ServiceSettings):
    """Base of a controller's settings; a subclass sets the prefix of the variables."""

    resync: float = Field(default=300.0, gt=0)
    """Seconds between two passes over every object."""
    handler_deadline: float = Field(default=300.0, gt=0)
    """Seconds after which the handling of one message of the bus is late: /readyz then says which durable."""
    replicas_share: bool = True
    """True spreads objects over the live replicas, each of which holds a Lease."""
