"""The revisions of a service: which are recorded, which are kept, and which have pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus
from paddlewheel.contracts.stamps import parse_stamp
from serving_controller.domain import names
from serving_controller.domain.engines.port import Child, Desired, metadata
from serving_controller.domain.model import Observed
from serving_controller.domain.revision import Revision, read_revision

STABLE, CANDIDATE, RETIRED = "Stable", "Candidate", "Retired"


@dataclass(frozen=True)
class Known:
    """A revision that is recorded, or that the spec asks for."""

    revision: Revision
    number: int
    since: datetime
    is_recorded: bool = False


def known_revisions(seen: Observed, asked: Collection[Revision], now: datetime) -> dict[str, Known]:
    """Recorded ones, and those that the spec asks for, by name."""
    known = {}
    for name, record in seen.of(names.RECORD).items():
        since = parse_stamp(str(record["metadata"].get("creationTimestamp", ""))) or now
        known[name] = Known(
            read_revision(seen.own.name, record["data"]), int(record["revision"]), since, True
        )
    for revision in asked:
        number = max((k.number for k in known.values()), default=0) + 1
        known.setdefault(revision.name, Known(revision, number, now))
    return known


@dataclass(frozen=True)
class Kept:
    """Names of revisions.

    Args:
        all: that are kept.
        running: of these, those that have pods.
        idle: since when each retired one has had no requests.
        recheck: seconds until the next of them loses its pods.
    """

    all: frozenset[str]
    running: frozenset[str]
    idle: Mapping[str, datetime]
    recheck: float | None = None


def keep(
    known: Mapping[str, Known],
    live: Collection[str],
    routed: Collection[str],
    before: PaddleServiceStatus,
    limits: tuple[int, float],
    now: datetime,
) -> Kept:
    """Decide which revisions stay.

    Args:
        live: stable, or on trial, or on their way.
        routed: that get requests now, as far as is known.
        limits: number of old revisions that stay, and seconds that pods stay once they get no requests.
    """
    history, drain = limits
    holding = {*live, *routed} & known.keys()
    retired = (name for name, each in known.items() if each.is_recorded and name not in holding)
    idle = {name: _idle_since(before, name, now) for name in retired}
    draining = {name for name, since in idle.items() if now < since + timedelta(seconds=drain)}
    last = _last_stable(before, idle)
    old = sorted(idle, key=lambda name: (name == last, known[name].number), reverse=True)
    left = [(idle[name] + timedelta(seconds=drain) - now).total_seconds() for name in draining]
    kept = frozenset({*holding, *draining, *old[:history]})
    return Kept(kept, frozenset({*holding, *draining}), idle, min(left, default=None))


def _last_stable(before: PaddleServiceStatus, idle: Mapping[str, datetime]) -> str:
    """The retired one to return to, which stays however many rejected ones came after it; "" = none."""
    stable = [each.name for each in before.revisions if each.was_stable and each.name in idle]
    return max(stable, key=lambda name: idle[name], default="")


def _idle_since(before: PaddleServiceStatus, name: str, now: datetime) -> datetime:
    found = before.revision(name)
    return found.idle_since if found is not None and found.idle_since is not None else now


def record(desired: Desired, known: Known) -> Child:
    """What the revision is made of, from which it can be made again, by any engine."""
    name = known.revision.name
    manifest = {
        "apiVersion": "apps/v1",
        "kind": names.RECORD,
        "metadata": metadata(desired, name, name),
        "data": known.revision.data,
        "revision": known.number,
    }
    return Child(names.RECORD, name, manifest)
