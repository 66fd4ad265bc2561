"""Validation of a cluster's spec; errors name the field."""

from __future__ import annotations

from typing import Any

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.spec import ClusterSpec


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({"name": "Demo"}, "InvalidName", "name"),
        ({"name": "../demo"}, "InvalidName", "name"),
        ({"name": ""}, "InvalidName", "name"),
        ({"name": "x" * 41}, "InvalidName", "name"),
        ({"nodes": 0}, "InvalidNodes", "nodes"),
        ({"nodes": 16}, "InvalidNodes", "nodes"),
        ({"fake_nodes": -1}, "InvalidFakeNodes", "fake_nodes"),
        ({"address_range": "198.18.0.0/20"}, "InvalidRange", "address_range"),
        ({"address_range": "127.0.0.0/8"}, "InvalidRange", "address_range"),
        ({"address_range": "nonsense"}, "InvalidRange", "address_range"),
    ],
)
def test_error_names_the_invalid_field(fields: dict[str, Any], reason: str, named: str) -> None:
    with pytest.raises(Permanent) as caught:
        ClusterSpec(**fields)
    assert caught.value.reason == reason
    assert named in caught.value.message


def test_node_names_start_with_the_cluster_name() -> None:
    assert ClusterSpec(name="demo", nodes=2).node_names == ("demo-1", "demo-2")


def test_control_plane_only_has_no_nodes() -> None:
    assert ClusterSpec(control_plane_only=True).node_names == ()


def test_spec_round_trip() -> None:
    spec = ClusterSpec(name="demo", nodes=3, fake_nodes=4)
    assert ClusterSpec(**spec.to_json()) == spec  # type: ignore[arg-type]
