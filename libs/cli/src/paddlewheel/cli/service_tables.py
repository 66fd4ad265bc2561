"""Tables of `paddlewheel service`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from paddlewheel.cli.objects import conditions
from paddlewheel.cli.service_changes import STEPPING, Json, Seen
from paddlewheel.cli.table import Table, properties
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus, RevisionStatus, RolloutStatus
from paddlewheel.contracts.objects import key_of, status_of

_LONGEST = 60
"""Number of characters of a value that a table shows."""
_SHOWN = frozenset({"image", "model", "model.name", "model.version"})


def services(seen: Sequence[Seen]) -> Table:
    """A row for each service, with the reason why it is not ready."""
    table = Table(
        ("service", "mode", "ready", "url", "traffic", "reason"),
        wraps={"traffic"},
        drops=("mode", "traffic", "url", "reason"),
        states={"ready"},
    )
    for each in seen:
        status = each.status
        reason = str(status_of(each.obj).get("reason", ""))
        table.add_row(str(key_of(each.obj)), status.mode, _ready(status), status.url, _shares(status), reason)
    return table


def _ready(status: PaddleServiceStatus) -> str:
    found = find(status.conditions, "Ready")
    return found.status if found else "Unknown"


def _shares(status: PaddleServiceStatus) -> str:
    return ", ".join(f"{r.name} {r.traffic} %" for r in status.revisions if r.traffic)


def service(seen: Seen, contents: Mapping[str, Json]) -> Iterator[Table | str]:
    """Everything about one service.

    Args:
        contents: content of the revisions by name.
    """
    status = seen.status
    address = status.address.url if status.address else ""
    about = {"mode": status.mode, "url": status.url, "in the cluster": address}
    yield properties(str(key_of(seen.obj)), about)
    yield conditions(status.conditions)
    yield revisions(status, contents)
    if status.rollout:
        yield _rollout(status.rollout)


def revisions(status: PaddleServiceStatus, contents: Mapping[str, Json]) -> Table:
    """A row for each revision, newest first, with its differences from the previous one."""
    table = Table(
        ("revision", "no", "role", "serves", "traffic", "ready", "since", "reason", "message"),
        wraps={"serves", "message"},
        drops=("since", "message", "reason", "role"),
        right={"no", "traffic"},
    )
    changed = changes(status, contents)
    for revision in status.revisions:
        since = revision.since.isoformat(timespec="seconds") if revision.since else ""
        pods = f"{revision.ready}/{revision.replicas}"
        served = "\n".join([_served(revision), *changed.get(revision.name, ())])
        share = f"{revision.traffic} %" if revision.traffic else ""
        table.add_row(
            revision.name, str(revision.number), revision.role, served, share, pods, since,
            revision.reason, revision.message,
        )  # fmt: skip
    return table


def _served(revision: RevisionStatus) -> str:
    model = revision.model
    return f"model {model.name} {model.version}" if model else revision.image


def changes(status: PaddleServiceStatus, contents: Mapping[str, Json]) -> dict[str, list[str]]:
    """The differences of each revision from the previous one, by the name of the revision."""
    names = [revision.name for revision in status.revisions if revision.name in contents]
    return {newer: differences(contents[newer], contents[older]) for newer, older in pairwise(names)}


def differences(content: Json, before: Json) -> list[str]:
    """Fields of a revision that differ from another: name and value, or only the name of a large field."""
    new, old = _flat(content), _flat(before)
    names = sorted((new.keys() | old.keys()) - _SHOWN)
    return [_worded(name, new.get(name)) for name in names if new.get(name) != old.get(name)]


def _flat(content: Json) -> dict[str, object]:
    model = {f"model.{name}": value for name, value in (content.get("model") or {}).items()}
    return {**content, **model}


def _worded(name: str, value: object) -> str:
    if value is None:
        return f"no {name}"
    if isinstance(value, (Mapping, list)):
        return f"other {name}"
    text = str(value)
    return f"{name} {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"


def _rollout(rollout: RolloutStatus) -> Table | str:
    title = f"{rollout.candidate}: {rollout.phase}, step {rollout.step}, {rollout.percent} %"
    title = f"{title} {rollout.message}".strip()
    if rollout.verdict is None:
        return title if rollout.phase != STEPPING else f"{title}; no figures yet"
    figures = ("requests", "errors", "p95 ms")
    table = Table(("side", *figures), title, right=set(figures))
    for side, counts in (("stable", rollout.verdict.stable), ("candidate", rollout.verdict.candidate)):
        table.add_row(side, str(counts.requests), str(counts.errors), f"{counts.p95 * 1000:.1f}")
    if metrics := rollout.verdict.candidate.metrics:
        table.caption = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    return table
