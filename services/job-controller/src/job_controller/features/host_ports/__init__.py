"""Jobs with `intranet: Host` own a block of host ports."""

from __future__ import annotations

from collections.abc import Mapping

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

    def gate(self, seen: Observed, options: Options) -> Gate | None:
        return _NO_PORTS if claim_ports(seen, options.port_range).is_exhausted else None

    def must_wait(self, seen: Observed, options: Options) -> bool:
        """The watch wakes the job once it has reported the claim."""
        block = claim_ports(seen, options.port_range)
        return block.port is None or not block.is_firm

    def annotations(self, seen: Observed, gate: Gate, options: Options) -> Mapping[str, str | None]:
        """A job that waits for something else holds no ports that others could use."""
        block, name = claim_ports(seen, options.port_range), names.ANNOTATION_HOST_PORT
        wanted = None if block.port is None else str(block.port)
        may_claim = gate.is_open or gate.reason == Reason.HOST_PORTS_EXHAUSTED
        return {name: wanted} if may_claim and seen.job.annotations.get(name) != wanted else {}
