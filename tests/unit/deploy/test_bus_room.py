"""The storage of the chart's NATS server takes all declared streams and the copies of subscribers."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy

import pytest

from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.charts import CHARTS, helm

MIB = 1024**2
WHOLE = sum(stream.max_bytes for stream in STREAMS if stream.storage == "file") // MIB
COPY = sum(stream.max_bytes for stream in FACTS if stream.storage == "file") // MIB
LOSSY = sum(stream.max_bytes for stream in STREAMS if stream.storage == "memory") // MIB


def rendered(*values: str) -> str:
    """What Helm complains about, "" when it renders."""
    flags = [part for value in ("crds.install=false", *values) for part in ("--set", value)]
    return helm("template", "release", str(CHARTS / "paddlewheel"), "--namespace", "p", *flags).stderr


def store(mib: int) -> str:
    return f"nats.jetstream.maxFileStore={mib}Mi"


def teams(number: int) -> list[str]:
    return [f"nats.subscribers[{i}].name=team-{i}" for i in range(number)]


def test_declared_streams_fit() -> None:
    assert rendered() == ""


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_store_that_is_too_small_for_streams_and_copies_is_refused(number: int) -> None:
    needed = WHOLE + number * COPY
    refused = rendered(store(needed - 1), *teams(number))
    assert f"set nats.jetstream.maxFileStore={needed}Mi" in refused
    assert f"for {number} nats.subscribers" in refused
    assert rendered(store(needed), *teams(number)) == ""


def test_a_memory_that_is_too_small_for_lossy_streams_and_copies_is_refused() -> None:
    needed = 3 * LOSSY
    room = (store(WHOLE + 2 * COPY), *teams(2))
    small = rendered(f"nats.jetstream.maxMemoryStore={needed - 1}Mi", *room)
    assert f"set nats.jetstream.maxMemoryStore={needed}Mi and nats.resources.limits.memory" in small
    assert rendered(f"nats.jetstream.maxMemoryStore={needed}Mi", *room) == ""


def test_streams_that_keep_more_count_with_their_copies() -> None:
    more = 1024 - 256
    needed = WHOLE + COPY + 2 * more
    assert f"({needed}Mi)" in rendered(store(needed - 1), "nats.streams.PW_JOBS.maxBytes=1Gi")
    assert rendered(store(needed), "nats.streams.PW_JOBS.maxBytes=1Gi") == ""
    assert rendered(store(WHOLE + COPY), "nats.streams.PW_JOBS.maxAge=30d") == ""


def test_twenty_teams_with_small_copies_fit_into_the_default_store() -> None:
    small = [f"nats.subscribers[{i}].maxBytes=4Mi" for i in range(20)]
    assert rendered(*teams(20), *small) == ""
    assert "or a smaller maxBytes of nats.subscribers" in rendered(*teams(20))


def test_five_servers_share_three_replicas() -> None:
    least = -(-(WHOLE + COPY) * 3 // 5)
    assert rendered(store(least), "nats.replicas=5") == ""
    assert rendered(store(least - 1), "nats.replicas=5")


def test_a_server_of_ones_own_is_not_judged() -> None:
    own = ("nats.enabled=false", "nats.url=nats://example:4222", store(1))
    assert rendered(*own) == ""


def volume_problem(tmp_path: Path, found: object, size: str) -> str:
    """What the chart says of a StatefulSet that it finds in the cluster; `helm template` looks nothing up."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: probe, version: 0.0.0}")
    (tmp_path / "values.yaml").write_text(json.dumps({"found": found, "size": size}))
    copy(CHARTS / "paddlewheel/templates/_nats.tpl", tmp_path / "templates")
    (tmp_path / "templates/probe.yaml").write_text(
        'said: {{ include "paddlewheel.natsVolumeProblem" .Values | trim | quote }}'
    )
    ended = helm("template", "probe", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    [said] = [line for line in ended.stdout.splitlines() if line.startswith("said: ")]
    return said.removeprefix("said: ").strip('"')


def make_servers(size: str) -> dict[str, object]:
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}
    return {"spec": {"volumeClaimTemplates": [claim]}}


def test_an_upgrade_that_would_resize_the_servers_volumes_says_how(tmp_path: Path) -> None:
    said = volume_problem(tmp_path, make_servers("3Gi"), "4Gi")
    assert said.startswith("nats.persistence.size=4Gi: the volumes of StatefulSet nats have 3Gi")
    assert "Keep them with nats.persistence.size=3Gi" in said
    assert "docs/tasks/upgrade.md" in said


@pytest.mark.parametrize("found", [{}, make_servers("4Gi"), make_servers("4096Mi"), {"spec": {}}])
def test_an_installation_and_volumes_of_that_size_are_no_problem(tmp_path: Path, found: object) -> None:
    assert volume_problem(tmp_path, found, "4Gi") == ""


def test_volumes_of_the_version_before_can_be_kept() -> None:
    """As docs/tasks/upgrade.md has it."""
    kept = ("profile=production", "nats.persistence.size=3Gi", "nats.jetstream.maxFileStore=2800Mi")
    assert rendered(*kept) == ""
