"""The storage of the chart's NATS server is large enough for all streams that the services declare."""

from __future__ import annotations

from pathlib import Path

import yaml

from paddlewheel.bus.streams import STREAMS

VALUES = Path(__file__).parents[3] / "deploy/charts/paddlewheel/values.yaml"
GIB = 1024**3


def test_declared_streams_fit() -> None:
    room = yaml.safe_load(VALUES.read_text())["nats"]["jetstream"]["maxFileStore"]
    assert room.endswith("Gi")
    assert sum(stream.max_bytes for stream in STREAMS) <= int(room.removesuffix("Gi")) * GIB
