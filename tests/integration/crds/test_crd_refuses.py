"""The API server itself refuses what could never work, and names the field and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.crds.api import Api, each, make

TABLE = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))
ROWS = {f"{kind}: {name}": (kind, case) for kind, cases in TABLE.items() for name, case in cases.items()}
pytestmark = pytest.mark.usefixtures("policies")


async def test_every_bad_manifest_is_refused_with_field_and_what_to_do(api: Api) -> None:
    async def check(row: tuple[str, dict[str, Any]]) -> None:
        kind, case = row
        answer = await api.send(make(kind, case["change"]))
        assert answer.stored == {}
        assert case["field"] in answer.error
        assert case["says"] in answer.error

    await each(ROWS, check)


async def test_a_table_names_every_row_that_fails(api: Api) -> None:
    async def check(changes: dict[str, Any]) -> None:
        assert (await api.send(make("PaddleJob", changes))).error == ""

    rows: dict[str, dict[str, Any]] = {"good": {}, "first": {"spec": None}, "last": {"spec.worker": None}}
    with pytest.raises(AssertionError, match="2 of 3 rows failed") as failed:
        await each(rows, check)
    named = [line.partition(": ")[0] for line in str(failed.value).split("\n\n")[1:]]
    assert named == ["first", "last"]
    with pytest.raises(AssertionError, match="0 of 0"):
        await each({}, check)


async def test_a_name_that_just_fits_is_accepted(api: Api) -> None:
    async def check(row: tuple[str, int]) -> None:
        kind, length = row
        assert (await api.send(make(kind, {"metadata.name": "n" * length}))).error == ""

    await each(
        {kind: (kind, n) for kind, n in (("PaddleJob", 54), ("SampleSet", 44), ("SampleJob", 53))}, check
    )


async def test_scaling_beyond_what_the_name_allows_is_refused(api: Api) -> None:
    manifest = make("PaddleJob", {"metadata.name": "j" * 46, "spec.worker.replicas": 100})
    async with api.kept(manifest) as stored:
        assert len(stored["metadata"]["name"]) == 53
        refused = await api.patch(stored, {"spec": {"worker": {"replicas": 101}}})
        assert "metadata.name" in refused.error
        held = await api.patch(stored, {"metadata": {"finalizers": ["finalizers.paddlepaddle.org"]}})
        assert held.error == ""
        await api.patch(stored, {"metadata": {"finalizers": None}})
