"""Jobs with `intranet: Host` own a block of host ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.feature import Feature
from job_controller.core.gate import Gate
from job_controller.core.model import Observed, Options
from job_controller.features.host_ports.rules import claim_ports
from paddlewheel.contracts.reasons import Reason

_NO_PORTS = Gate(
    False, Reason.HOST_PORTS_EXHAUSTED, "every block of host ports is in use; widen the port range"
)


class HostPorts(Feature):
    """The annotation `host-port` of a job is its claim to a block."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return replace(seen, port_block=claim_ports(seen, options.port_range))

    def gate(self, seen: Observed) -> Gate | None:
        return _NO_PORTS if seen.port_block.is_exhausted else None

    def must_wait(self, seen: Observed) -> bool:
        """The watch wakes the job once it has reported the claim."""
        return seen.port_block.port is None or not seen.port_block.is_firm

    def annotations(self, seen: Observed, gate: Gate) -> Mapping[str, str | None]:
        """A job that waits for something else holds no ports that others could use."""
        block, name = seen.port_block, names.ANNOTATION_HOST_PORT
        wanted = None if block.port is None else str(block.port)
        may_claim = gate.is_open or gate.reason == Reason.HOST_PORTS_EXHAUSTED
        return {name: wanted} if may_claim and seen.job.annotations.get(name) != wanted else {}
