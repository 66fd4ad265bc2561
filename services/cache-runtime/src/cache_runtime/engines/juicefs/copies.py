"""What the log of `juicefs sync` says of each object that it was to copy.

A client that fails does not say in one place what failed: it names objects in its log, and counts them in its
last lines. Where the names are fewer than the count, nothing is taken for copied.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from cache_runtime.engines.juicefs.output import (
    COPY,
    ListingParser,
    Problem,
    Record,
    Remark,
    cause_of,
    is_outage,
)

TEXT_MAX = 16 << 10
"""Characters that a copy keeps of what it is told of one object: a name twice, and the beginning of what the
store has said, which may be long."""
_OTHERS = 100
"""Last problems that are kept of those that concern no single key."""
_FAILED = re.compile(r"failed to handle (\d+) objects")
_FAILED_ONE = "Failed to copy object {0}: "
_NAMING = (COPY, "Failed to copy data of ")
_VOLUME_FAILED = re.compile(r"input/output error( \[\w+@[\w.]+:\d+\])?")
_VERSION = r"size=\d+, mtime=[-+\w:. ]+"
_SAID_TORN = {
    "{0} changed during sync.": rf" Original: {_VERSION}; Current: {_VERSION}",
    "check {0} in ": r"\w+://.*",
    "copied {0} size mismatch: ": r"original=\d+, current=\d+",
    "object {0} was removed during sync": "",
}
"""Of what was copied, and has changed in the source meanwhile, or may have: nobody could ask. How it is said,
and a pattern of what follows."""
_TORN = tuple(f"{_FAILED_ONE}{said}" for said in _SAID_TORN)
_SENTENCES = "|".join(re.escape(said).replace(r"\{0\}", r"\1") + rest for said, rest in _SAID_TORN.items())
_TORN_NAME = re.compile(rf"{COPY}(.+): (?:{_SENTENCES}) \[\w+@[\w.]+:\d+\]", re.DOTALL)
_HEAD, _HEAD_LATER, _SUMMED = "head ", "Head src ", "Found: "
_STAT_FAILED = re.compile(r": l?stat /.*: ([\w ]+) \[\w+@[\w.]+:\d+\]", re.DOTALL)
_FOUND = re.compile(r"Found: (\d+),")
"""Counts the objects that a sync has dealt with, skipped ones among them."""
_KEPT = re.compile(r"Found: .*\bskipped: (\d+)")
_LEFT, _SKIPPED = re.compile(r"Head src (.*) \[copyData@[\w.]+:\d+\]", re.DOTALL), ": skipped"
"""That it was there a moment ago is no failure to the client, whose sum has it among the skipped ones. Of a
small object it says so; of a large one it gives the error of the part that it was reading."""


class CopyLog:
    """What the log of a copy says, read while it is written: it is as long as its keys are many, and none of
    those that it names may be missed."""

    def __init__(self, log_id: str) -> None:
        self._parser = ListingParser(log_id)
        self._others, self._data = deque[str](maxlen=_OTHERS), deque[str](maxlen=_OTHERS)
        self._failures: list[str] = []
        self.remarks: list[str] = []

    @property
    def problems(self) -> list[str]:
        """Those of single keys first."""
        return [*self._failures, *self._data, *self._others]

    def feed(self, data: bytes) -> None:
        self._keep(self._parser.feed(data))

    def close(self) -> None:
        """There is no more of it."""
        self._keep(self._parser.close())

    def _keep(self, found: Iterable[Record]) -> None:
        for record in found:
            if isinstance(record, Problem):
                self._keep_problem(record.text)
            elif isinstance(record, Remark) and record.text.startswith((_HEAD, _HEAD_LATER, _SUMMED)):
                self.remarks.append(record.text[:TEXT_MAX])

    def _keep_problem(self, text: str) -> None:
        """Some end with a trace of calls. Those on data of many objects must not displace why they fail."""
        if text.startswith(COPY):
            self._failures.append(text[:TEXT_MAX])
        else:
            kept = self._data if text.startswith(_NAMING) else self._others
            kept.append(text.partition("\n")[0][:TEXT_MAX])


class CopyReport:
    """What a log that is complete says of the objects that a command was to copy.

    Args:
        keys: of all objects that the command was given.
    """

    def __init__(self, log: CopyLog, keys: Sequence[bytes]) -> None:
        self._problems, self._remarks, self._keys = log.problems, log.remarks, keys

    @cached_property
    def cause(self) -> str:
        """The last problem that is no sum, without secrets, "" when there is none."""
        return cause_of(self._problems) if self._problems else ""

    @cached_property
    def found(self) -> int | None:
        """How many objects the command has found in the source; None when it ended without its sum."""
        return self._summed(_FOUND)

    @cached_property
    def kept(self) -> int | None:
        """How many objects the command has left as they were; None when it ended without its sum."""
        skipped = self._summed(_KEPT)
        if skipped is None:
            return None
        return max(0, skipped - sum(map(bool, map(_LEFT.fullmatch, self._remarks))))

    @cached_property
    def failed(self) -> Mapping[bytes, str]:
        """Which of the keys a failed command did not copy, with the reason.

        All of them, unless its log is about as many as it counts.
        """
        return {key: cause_of([text]) for key, text in self._failed.items()}

    @cached_property
    def away(self) -> frozenset[bytes]:
        """Which of the keys a failed command did not copy because a store or the database is away. What the
        names say makes no outage, so a problem that names another key counts for none.

        Of its own volume the client says there only that it has failed, and elsewhere why.
        """
        is_volume_away = any(is_outage(text) for text in self._problems if not text.startswith(_NAMING))
        causes = {key: _unnamed(problem, key) for key, problem in self._failed.items()}
        return frozenset(
            key
            for key, cause in causes.items()
            if is_outage(cause) or (is_volume_away and _VOLUME_FAILED.fullmatch(cause))
        )

    @cached_property
    def torn(self) -> frozenset[bytes]:
        """Which of the keys have, or may have, changed in the source while they were copied. What has arrived
        may be parts of two versions. Not those whose line may be about another key: of a name that reads
        alike, or is longer."""
        return frozenset(key for text in self._problems for key in self._torn_by(text))

    @cached_property
    def missing(self) -> Mapping[bytes, str]:
        """Which of the keys the command did not find: it only warns of what has left the source.

        All of them, unless its log is about as many as its sum lacks.
        """
        found, keys, named = self.found, self._keys, self._not_found
        left = dict.fromkeys(self._left(), "has left the source")
        if found is not None and 0 <= len(keys) - found <= len(named):
            gone = {key: _why_gone(text) for some, text in named.items() for key in some}
            return {**gone, **self.unanswered, **left}
        some = "an unknown number" if found is None else str(found)
        return dict.fromkeys(
            keys, f"the client found {some} of {len(keys)} objects: some have left the source"
        )

    @cached_property
    def unanswered(self) -> Mapping[bytes, str]:
        """For which of the keys the store did not answer, with the reason: it may have them."""
        causes = {some: [_unanswered(text, key) for key in some] for some, text in self._not_found.items()}
        return {
            key: cause_of([f"the {_asked(self._not_found[some])} does not answer for it: {cause}"])
            for some, said in causes.items()
            if all(is_outage(cause) for cause in said)
            for key, cause in zip(some, said, strict=True)
        }

    @cached_property
    def _known(self) -> Mapping[str, list[bytes]]:
        """The keys that the log shows alike, by what it shows."""
        known = defaultdict[str, list[bytes]](list)
        for key in self._keys:
            known[_name(key)].append(key)
        return known

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._known), default=0)

    @cached_property
    def _not_found(self) -> Mapping[frozenset[bytes], str]:
        return self._blamed(self._remarks, _HEAD, " from ")

    @cached_property
    def _failed(self) -> Mapping[bytes, str]:
        """With the lines as they are: what is said of them is shortened."""
        counted = next((int(found[1]) for text in self._problems if (found := _FAILED.match(text))), None)
        if counted is not None and self._named >= counted:
            blamed = self._blamed(self._problems, COPY, ": ")
            return {key: text for some, text in blamed.items() for key in some}
        return dict.fromkeys(self._keys, self.cause)

    @property
    def _named(self) -> int:
        """How many failures of the keys the log names."""
        return sum(any(True for _ in self._names_in(text, COPY, ": ")) for text in self._problems)

    def _torn_by(self, text: str) -> Sequence[bytes]:
        longest = max(self._names_in(text, COPY, ": "), key=len, default="")
        keys = self._known[longest] if longest else ()
        is_meant = len(keys) == 1 and text.startswith(tuple(each.format(longest) for each in _TORN))
        return keys if is_meant else ()

    def _left(self) -> Iterator[bytes]:
        """Those that were there when the client looked, and not when it was to copy them."""
        for text in self._remarks:
            if found := _LEFT.fullmatch(text):
                name = found[1].removesuffix(_SKIPPED)
                names = [name] if name != found[1] else self._names_in(text, _HEAD_LATER, ": ")
                for each in names:
                    yield from self._known.get(each, ())

    def _summed(self, pattern: re.Pattern[str]) -> int | None:
        return next((int(summed[1]) for text in self._remarks if (summed := pattern.match(text))), None)

    def _blamed(self, texts: Iterable[str], start: str, end: str) -> Mapping[frozenset[bytes], str]:
        """The keys that a line may be about, with the line: one of them was meant."""
        blamed: dict[frozenset[bytes], str] = {}
        for text in texts:
            names = self._names_in(text, start, end)
            if some := frozenset(key for name in names for key in self._known[name]):
                blamed[some] = text
        return blamed

    def _names_in(self, text: str, start: str, end: str) -> Iterator[str]:
        """Which known names may be between `start` and `end`; a name may contain what ends it."""
        if text.startswith(start):
            rest = text[len(start) : len(start) + self._longest + len(end)]
            names = (rest[: found.start()] for found in re.finditer(re.escape(end), rest))
            yield from (name for name in names if name in self._known)


def torn_names(said: Iterable[Record]) -> frozenset[bytes]:
    """As `CopyReport.torn`, of a command that was given no keys; not those that the log shows in part."""
    found = (_TORN_NAME.fullmatch(record.text) for record in said if isinstance(record, Problem))
    return frozenset(name[1].encode() for name in found if name and "\ufffd" not in name[1])


def _name(key: bytes) -> str:
    """As the log shows it."""
    return key.decode(errors="replace")


def _why_gone(text: str) -> str:
    """For a directory of the node, the client says it in words; of a store, in many."""
    found = _STAT_FAILED.search(text)
    if found and found[1] != "no such file or directory":
        return f"cannot be read in the source: {found[1]}"
    return "has left the source, or cannot be read there"


def _asked(text: str) -> str:
    """Whom. A name may look like an address, which changes no more than what is told."""
    return "volume" if " from jfs://" in text else "source"


def _unnamed(problem: str, key: bytes) -> str:
    """The error without the name, "" when it names another."""
    start = _FAILED_ONE.format(_name(key))
    if problem.startswith(COPY) and not problem.startswith(start):
        return ""
    return _without(_name(key), problem.removeprefix(start))


def _unanswered(text: str, key: bytes) -> str:
    """The error, without the address and the name, which may have any words."""
    return _without(_name(key), text.removeprefix(f"{_HEAD}{_name(key)} from ").partition(": ")[2])


def _without(name: str, text: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "", text)
