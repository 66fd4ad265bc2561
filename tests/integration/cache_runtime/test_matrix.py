"""A slice of the fault matrix: each operation and each fault. All pairs: `make chaos ONLY=matrix`."""

from __future__ import annotations

import pytest
from tests.integration.cache_runtime.fault_matrix.cases import Case, Fault, Operation
from tests.integration.cache_runtime.fault_matrix.play import play

from paddlewheel.testkit.storage import ObjectStore

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CASES = [
    Case(Operation.SYNC, Fault.MASTER, 1),
    Case(Operation.SYNC, Fault.STORE, 1),
    Case(Operation.WARMUP, Fault.AGENT, 1),
    Case(Operation.WARMUP, Fault.DISK, 1),
    Case(Operation.RMR, Fault.METADATA, 1),
    Case(Operation.RMR, Fault.BUS, 1),
    Case(Operation.CLEAR, Fault.BUS, 1),
]


def test_the_slice_has_every_operation_and_every_fault() -> None:
    assert {case.operation for case in CASES} == {*Operation}
    assert {case.fault for case in CASES} == {*Fault}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_nothing_is_lost_and_what_status_claims_is_so(case: Case, object_store: ObjectStore) -> None:
    verdict = await play(case, object_store)
    assert verdict.problems == (), f"{verdict}\n{verdict.logs}"
