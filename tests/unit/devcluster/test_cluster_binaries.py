"""When the cluster's programs are rebuilt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddlewheel.devcluster.binaries import COREDNS, KUBERNETES, cache_key, flags


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "go.mod").write_text("module x\n")
    (tmp_path / "go.sum").write_text("a h1:1\n")
    (tmp_path / "main.go").write_text("package main\n")
    return tmp_path


def test_cache_key_is_stable(source: Path) -> None:
    assert cache_key(COREDNS, source) == cache_key(COREDNS, source)


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "main.go"])
def test_cache_key_changes_with_the_source(source: Path, file: str) -> None:
    before = cache_key(COREDNS, source)
    (source / file).write_text("changed\n")
    assert cache_key(COREDNS, source) != before


def test_cache_key_changes_with_the_flags(source: Path) -> None:
    other = replace(COREDNS, link="-X main.version=2")
    assert cache_key(other, source) != cache_key(COREDNS, source)


def test_cache_key_changes_with_the_data_files(source: Path) -> None:
    assert cache_key(replace(COREDNS, data={"example.com/x": ("a.yaml",)}), source) != cache_key(
        COREDNS, source
    )


def test_kubernetes_programs_are_linked_with_their_version() -> None:
    assert "gitVersion=v1.36.3" in flags(KUBERNETES)[-1]


def test_etcd_is_installed_under_its_own_name() -> None:
    assert KUBERNETES.programs["server"] == "etcd"
