"""The storage of the chart's NATS server takes all declared streams and the copies of subscribers."""

from __future__ import annotations

from pathlib import Path

import yaml

from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.streams import STREAMS

VALUES = Path(__file__).parents[3] / "deploy/charts/paddlewheel/values.yaml"
GIB = 1024**3


def test_declared_streams_fit() -> None:
    nats = yaml.safe_load(VALUES.read_text())["nats"]
    room = nats["jetstream"]["maxFileStore"]
    assert room.endswith("Gi")
    copies = len(nats["subscribers"]) * sum(stream.max_bytes for stream in FACTS)
    assert sum(stream.max_bytes for stream in STREAMS) + copies <= int(room.removesuffix("Gi")) * GIB
