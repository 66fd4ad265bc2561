"""The book-keeping of a fault run: what was promised against what is there. Pure, so it can be proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paddlewheel.contracts.generated.registry import EVENTS

ORDER = ("JobAccepted", "JobGated", "JobStarting", "JobRunning", "JobSucceeded", "JobFailed", "JobDeleted")
"""In which facts of one job may follow each other, each at most once; `EACH_EPOCH` once in an epoch."""
EACH_EPOCH = frozenset({"JobStarting", "JobRunning"})
BEFORE_THE_END = frozenset({"JobStuck", "JobRestarted", "JobSuspended", "JobResumed"})
"""Facts of a job that may come at any time before its end, and again."""
_ENDS = ORDER.index("JobSucceeded")
_FIRST = (0, 0)
_LAST_EPOCH = 2**31
UNORDERED = frozenset(name.rpartition(".")[2] for name in EVENTS if not name.startswith("paddlewheel.jobs."))
"""Facts of other objects, which come again in many orders."""


@dataclass(frozen=True)
class Account:
    """Ids of facts.

    Args:
        lost: promised, and not there.
        doubled: there more than once.
        disordered: there behind a fact of the same object that comes after them.
    """

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    disordered: tuple[str, ...] = ()


def settle_facts(promised: Iterable[str], stored: Sequence[str]) -> Account:
    """Compare the facts that objects announce (`uid/fact/attempt`) with those of a stream, oldest first."""
    counts = Counter(stored)
    return Account(
        lost=tuple(sorted(set(promised) - counts.keys())),
        doubled=tuple(sorted(fact for fact, count in counts.items() if count > 1)),
        disordered=tuple(find_disorder(stored)),
    )


def settle_effects(facts: Iterable[str], effects: Sequence[str]) -> Account:
    """Compare what lies in the stream with what a subscriber has done."""
    counts = Counter(effects)
    return Account(
        lost=tuple(sorted(set(facts) - counts.keys())),
        doubled=tuple(sorted(fact for fact, count in counts.items() if count > 1)),
    )


def settle_started(facts: Iterable[str], started: Mapping[str, set[str]]) -> Account:
    """Compare the failures in the stream with the jobs that a trigger made for them.

    Args:
        started: id of a fact -> uids of the jobs made for it.
    """
    failures = {fact for fact in facts if fact.split("/")[1] == "JobFailed"}
    return Account(
        lost=tuple(sorted(failures - started.keys())),
        doubled=tuple(sorted(fact for fact, uids in started.items() if len(uids) > 1)),
    )


def find_disorder(stored: Sequence[str]) -> list[str]:
    """Facts of jobs that came behind a later one of the same job. Raises LookupError for an unknown fact."""
    furthest: dict[str, tuple[int, int]] = {}
    late = []
    for event_id in stored:
        uid, fact, attempt = event_id.split("/")
        if fact in UNORDERED:
            continue
        if fact in BEFORE_THE_END:
            late += [event_id] if furthest.get(uid, _FIRST) >= (_LAST_EPOCH, _ENDS) else []
            continue
        if fact not in ORDER:
            raise LookupError(f"{event_id}: {fact} has no place in tests.chaos.ledger.ORDER: add it there")
        place = _place(fact, int(attempt))
        if place < furthest.get(uid, _FIRST):
            late.append(event_id)
        furthest[uid] = max(place, furthest.get(uid, _FIRST))
    return late


def _place(fact: str, attempt: int) -> tuple[int, int]:
    """Epoch, and place in the order of its facts."""
    index = ORDER.index(fact)
    if fact in EACH_EPOCH:
        return attempt, index
    return (_LAST_EPOCH if index >= _ENDS else 0), index


def made_twice(pods: Mapping[tuple[str, str], set[str]]) -> list[str]:
    """Names of pods that one owner was given more than once.

    Args:
        pods: (uid of the owner, name of the pod) -> uids of the pods that bore that name.
    """
    return sorted(name for (_, name), uids in pods.items() if len(uids) > 1)
