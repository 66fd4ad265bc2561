"""The threads of a run, by the container's CPU limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.cpus import cpu_limit

V1 = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({V1[0]: "400000\n", V1[1]: "100000\n"}, 4),
        ({V1[0]: "-1\n", V1[1]: "100000\n"}, 8),
        ({"cpu.max": "garbage"}, 8),
        ({}, 8),
    ],
    ids=["v2", "v2-unlimited", "more than the node", "v1", "v1-unlimited", "unreadable", "none"],
)
def test_the_limit_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: Mapping[str, str], limit: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cpu_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("limit", "workers", "given", "threads"),
    [(4, 1, 0, 4), (4, 2, 0, 2), (1.9, 1, 0, 1), (0.2, 1, 0, 1), (2, 3, 0, 1), (4, 1, 2, 2), (1, 1, 3, 3)],
)
def test_threads_are_the_limit_divided_by_the_workers(
    limit: float, workers: int, given: int, threads: int
) -> None:
    settings = PaddleRuntimeSettings(model_uri="/model", workers=workers, math_threads=given)

    assert settings.threads_of_a_run(limit) == threads


@pytest.mark.parametrize(("http", "given", "own"), [(8080, 0, 8081), (8081, 0, 8082), (8081, 9000, 9000)])
def test_metrics_have_a_port_of_their_own(http: int, given: int, own: int) -> None:
    assert PaddleRuntimeSettings(model_uri="/model", http_port=http, metrics_port=given).own_port == own


def test_the_two_ports_differ() -> None:
    with pytest.raises(ValueError, match="must differ from PADDLE_RUNTIME_HTTP_PORT"):
        PaddleRuntimeSettings(model_uri="/model", http_port=8080, metrics_port=8080)
