"""Which published version a service has chosen: kept in its annotation, so that no restart and no lost stream
changes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddlewheel.contracts.objects import annotations_of
from paddlewheel.contracts.stamps import milliseconds_stamp, parse_stamp
from serving_controller.domain import names

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Publication:
    """A version of a model, published at a time."""

    name: str
    version: str
    digest: str
    uri: str
    at: datetime


Chosen = Mapping[str, Publication]
"""By the key under which a service follows the model."""


def key_of(name: str, version: str = "", digest: str = "") -> str:
    """Under which a service follows a model: its name, with the version and the digest that it insists on."""
    return "@".join(part for part in (name, version, digest) if part)


def read_chosen(raw: Raw) -> dict[str, Publication]:
    """From the annotation of a PaddleService; empty where somebody else wrote what makes no sense."""
    try:
        found = json.loads(annotations_of(raw).get(names.ANNOTATION_CHOSEN) or "{}")
        entries = {str(key): _read(entry) for key, entry in found.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
    return {key: entry for key, entry in entries.items() if entry is not None}


def _read(entry: Mapping[str, Any]) -> Publication | None:
    at = parse_stamp(str(entry.get("at", "")))
    fields = [str(entry.get(name, "")) for name in ("name", "version", "digest", "uri")]
    return None if at is None else Publication(fields[0], fields[1], fields[2], fields[3], at)


def choose(before: Chosen, published: Chosen, followed: frozenset[str]) -> dict[str, Publication]:
    """The newest publication of each followed model, whatever order they arrived in."""
    both = ((key, (before.get(key), published.get(key))) for key in sorted(followed))
    known = {key: [entry for entry in entries if entry is not None] for key, entries in both}
    return {key: max(entries, key=_order) for key, entries in known.items() if entries}


def _order(entry: Publication) -> str:
    return milliseconds_stamp(entry.at)


def write_chosen(chosen: Chosen) -> str:
    """The annotation's value."""
    entries = {
        key: {
            "name": entry.name,
            "version": entry.version,
            "digest": entry.digest,
            "uri": entry.uri,
            "at": milliseconds_stamp(entry.at),
        }
        for key, entry in chosen.items()
    }
    return json.dumps(entries, sort_keys=True)
