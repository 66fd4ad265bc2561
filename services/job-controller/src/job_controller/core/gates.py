"""What keeps a job's pods from being created, in the order in which it is looked at."""

from __future__ import annotations

from job_controller.core.gate import Gate
from job_controller.core.model import Job, Observed
from job_controller.core.scaling import is_scaled_to_nothing
from job_controller.features.dataset.rules import decide_gate
from job_controller.features.gang.choice import Gang
from job_controller.features.gang.rules import gang_gate
from job_controller.features.host_ports.rules import PortBlock
from job_controller.features.kueue.rules import queue_gate
from paddlewheel.contracts.reasons import Reason

_NO_PORTS = Gate(
    False, Reason.HOST_PORTS_EXHAUSTED, "every block of host ports is in use; widen the port range"
)
_SUSPENDED = Gate(False, Reason.SUSPENDED, "spec.suspend is set; set it to false to go on")
_ZERO = Gate(False, Reason.SCALED_TO_ZERO, "every role has replicas 0; raise spec.worker.replicas to run")


_PASSED = Gate(True, Reason.NOTHING_TO_WAIT_FOR)


def decide_gates(seen: Observed, block: PortBlock, gang: Gang, *, has_ended: bool) -> Gate:
    """The first closed gate; when none is, what the data set says. A job that has ended waits for nothing."""
    data_set = decide_gate(seen)
    if has_ended:
        return data_set if data_set.is_open else _PASSED
    # Last Kueue and the gang, so that no place in a queue is taken before pods can be created.
    own = (_suspension(seen.job), _size(seen.job), data_set, _ports(block))
    gates = (*own, queue_gate(seen), gang_gate(seen, gang))
    return next((gate for gate in gates if gate is not None and not gate.is_open), data_set)


def _suspension(job: Job) -> Gate | None:
    return _SUSPENDED if job.spec.suspend else None


def _size(job: Job) -> Gate | None:
    return _ZERO if is_scaled_to_nothing(job) else None


def _ports(block: PortBlock) -> Gate | None:
    return _NO_PORTS if block.is_exhausted else None
