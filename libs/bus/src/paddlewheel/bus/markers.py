"""Headers of stored messages that mark a deletion, or name the revision that a write replaces."""

from __future__ import annotations

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The revision of the message that a write replaces."""
OPERATION = "KV-Operation"
DELETED = {OPERATION: "DEL", "Nats-TTL": "1h"}
"""A deletion stores a marker in place of the value, so that watchers see it. The marker expires."""
DONE = {"Nats-TTL": "1s"}
"""An empty message replaces a chunk that is done, and expires."""
