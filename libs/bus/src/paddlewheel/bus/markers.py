"""Headers by which what is stored says that something is over, or at which revision it is written."""

from __future__ import annotations

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The revision of what a message takes the place of."""
OPERATION = "KV-Operation"
DELETED = {OPERATION: "DEL", "Nats-TTL": "1h"}
"""A deletion leaves a marker for watchers, in place of the value (history of one), which expires."""
DONE = {"Nats-TTL": "1s"}
"""An empty message takes the place of a chunk that is done, and goes by itself: agents may remove nothing."""
