"""The table of data operations agrees with the messages on the bus and with the CRD."""

from __future__ import annotations

from typing import get_args

import pytest

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import SampleJobSpec
from paddlewheel.contracts.crds.operations import (
    OPERATIONS,
    WORDS,
    Operation,
    member_of,
    operation_for_model,
    operation_for_word,
    operation_of,
)
from paddlewheel.contracts.generated.cache_v1 import RunSpec, RunState
from paddlewheel.core.errors import Permanent


def test_every_member_of_a_run_has_one_row() -> None:
    assert tuple(operation.member for operation in OPERATIONS) == RunSpec.oneofs["operation"]
    assert len(set(WORDS)) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=WORDS)
def test_a_row_names_the_models_of_both_contracts(operation: Operation) -> None:
    assert operation.model in get_args(RunSpec.model_fields[operation.member].annotation)
    options = SampleJobSpec.model_fields[f"{operation.word}_options"]
    assert operation.options in get_args(options.annotation)
    assert options.alias == operation.options_field


@pytest.mark.parametrize("operation", OPERATIONS, ids=WORDS)
def test_an_operation_is_found_by_word_model_and_run(operation: Operation) -> None:
    spec = RunSpec.model_validate({operation.member: operation.model()})
    assert operation_for_word(operation.word) is operation
    assert operation_for_model(operation.model()) is operation
    assert operation_of(spec) is operation
    assert member_of(spec) == operation.member


@pytest.mark.parametrize(
    ("word", "member"), [("sync", "sync"), ("warmup", "warmup"), ("rmr", "remove"), ("clear", "clear")]
)
def test_the_words_of_the_published_contract(word: str, member: str) -> None:
    assert operation_for_word(word).member == member


def test_unknown_operations_are_refused_with_the_known_ones() -> None:
    with pytest.raises(Permanent, match="'shred' is not one of sync, warmup, rmr, clear"):
        operation_for_word("shred")
    with pytest.raises(Permanent, match="RunState is not one of SyncOperation, WarmupOperation"):
        operation_for_model(RunState())
    with pytest.raises(Permanent, match="not one of sync, warmup, remove, clear"):
        operation_of(RunSpec())
    assert member_of(RunSpec()) == ""


def test_a_model_derived_from_a_known_one_is_not_that_one() -> None:
    class Other(WireModel):
        pass

    with pytest.raises(Permanent, match="UnknownOperation"):
        operation_for_model(Other())
