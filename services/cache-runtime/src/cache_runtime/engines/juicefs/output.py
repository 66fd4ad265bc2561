"""Reading the output of the client.

`juicefs --verbose --log-id N sync --dry` can list every object store: with `--dry --force-update` and an
empty destination, each object that passes the filters is logged as `Will copy KEY (SIZE bytes)`. The log id
is random for each listing, so no key can forge a record; a key with newlines spans lines until the next one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path

_SUM = ">: failed to handle "
"""The last line of a sync counts what failed; the ones before say why."""
_FAILED = re.compile(r"failed to handle (\d+) objects")
_COPY = "Failed to copy object "
_HEAD = "head "
_SKIPPED = re.compile(r"skip (.*/: .*)", re.DOTALL)
_FOUND = re.compile(r"Found: (\d+),")
"""Counts the objects that a sync has dealt with, skipped ones among them."""
_UNREADABLE = re.compile(r'ignore invalid pattern: (?:"-(\w+)" )?(".*") \[')
_OUTAGE = re.compile(
    r"connection (refused|reset)|i/o timeout|\bEOF\b|broken pipe|no such host|no route to host|unreachable"
    r"|server misbehaving|timeout|timed out|deadline exceeded|try again|temporar"
    r"|\b(500|502|503|504)\b|InternalError|ServiceUnavailable|SlowDown|RequestTimeout|ServerNotInitialized",
    re.IGNORECASE,
)
_SECRET = re.compile(r"(://)[^/\s@]*@")
_OBJECT = re.compile(rb"Will copy (.*) \((\d+) bytes\) \[\w+@[\w.]+:\d+\]", re.DOTALL)


@dataclass(frozen=True)
class Problem:
    """A line of level ERROR or FATAL, without its prefix."""

    text: str


@dataclass(frozen=True)
class Remark:
    """A line of level WARNING, or the sum at the end, without its prefix."""

    text: str


Record = File | Problem | Remark


class ListingParser:
    """Turns chunks of log output into files, in order."""

    def __init__(self, log_id: str) -> None:
        self._mark = re.compile(
            rb"^\[" + log_id.encode() + rb"\] [\d/]+ [\d:.]+ juicefs\[\d+\] ", re.MULTILINE
        )
        self._buffer = b""

    def feed(self, data: bytes) -> list[Record]:
        """All records completed by this data."""
        self._buffer += data
        starts = [m.start() for m in self._mark.finditer(self._buffer)]
        if len(starts) < 2:
            return []
        complete, self._buffer = self._buffer[: starts[-1]], self._buffer[starts[-1] :]
        return self._parse(complete)

    def close(self) -> list[Record]:
        """The last record."""
        rest, self._buffer = self._buffer, b""
        return self._parse(rest)

    def _parse(self, text: bytes) -> list[Record]:
        found = (_record(body) for body in self._mark.split(text))
        return [record for record in found if record is not None]


def _record(body: bytes) -> Record | None:
    level, _, message = body.rstrip(b"\n").partition(b": ")
    if level in (b"<ERROR>", b"<FATAL>"):
        return Problem(message.decode(errors="replace"))
    if level == b"<WARNING>" or (level == b"<INFO>" and message.startswith(b"Found: ")):
        return Remark(message.decode(errors="replace"))
    match = _OBJECT.fullmatch(message)
    return File(encode_path(match[1]), int(match[2])) if match else None


def failed_copies(log: bytes, log_id: str, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """Which of the keys a failed command did not copy, with the reason.

    All of them, unless its log is about as many as it counts.
    """
    problems = [r.text for r in records(log, log_id) if isinstance(r, Problem)]
    blamed = _blamed(problems, keys, _COPY, ": ")
    counted = next((int(found[1]) for text in problems if (found := _FAILED.match(text))), None)
    if counted is not None and len(blamed) >= counted:
        return {key: last_problem(text) for some, text in blamed.items() for key in some}
    return dict.fromkeys(keys, last_problem("\n".join(problems)))


def missing_copies(log: bytes, log_id: str, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """Which of the keys a command did not find: it only warns of what has left the source.

    All of them, unless its log is about as many as its sum lacks.
    """
    remarks = [r.text for r in records(log, log_id) if isinstance(r, Remark)]
    found = next((int(summed[1]) for text in remarks if (summed := _FOUND.match(text))), None)
    blamed = _blamed(remarks, keys, _HEAD, " from ")
    if found is not None and 0 <= len(keys) - found <= len(blamed):
        return dict.fromkeys(chain.from_iterable(blamed), "has left the source, or cannot be read there")
    some = "an unknown number" if found is None else str(found)
    return dict.fromkeys(keys, f"the client found {some} of {len(keys)} objects: some have left the source")


def _blamed(
    texts: Iterable[str], keys: Iterable[bytes], start: str, end: str
) -> Mapping[frozenset[bytes], str]:
    """The keys that a line may be about, with the line: one of them was meant."""
    known = _by_name(keys)
    blamed: dict[frozenset[bytes], str] = {}
    for text in texts:
        some = frozenset(key for name in _names_in(text, start, end) for key in known.get(name, ()))
        if some:
            blamed[some] = text
    return blamed


def records(log: bytes, log_id: str) -> list[Record]:
    """Of the log of a command that has ended."""
    parser = ListingParser(log_id)
    return [*parser.feed(log), *parser.close()]


def _by_name(keys: Iterable[bytes]) -> Mapping[str, list[bytes]]:
    """The keys that the log shows alike."""
    known = defaultdict[str, list[bytes]](list)
    for key in keys:
        known[key.decode(errors="replace")].append(key)
    return known


def _names_in(text: str, start: str, end: str) -> Iterator[str]:
    """What may be between `start` and `end`; a name may contain what ends it."""
    if text.startswith(start):
        rest = text.removeprefix(start)
        yield from (rest[: found.start()] for found in re.finditer(re.escape(end), rest))


def refused_filter(remark: Remark) -> str:
    """What to tell of a pattern that the client cannot read, "" when the remark is about something else.

    The client goes on without it, and would delete what the pattern was to keep.
    """
    found = _UNREADABLE.match(remark.text)
    if found is None:
        return ""
    field = f"syncOptions.{found[1] or 'include or exclude'}"
    return (
        f"{field}: {found[2]} is no pattern: close each '[' with a ']', and write \\[ or \\\\ for these"
        " characters themselves"
    )


def unreadable_directory(remark: Remark) -> str:
    """What to tell of a directory that the client may not read, "" when the remark is about something else.

    The client goes on as if it were empty, and would delete what was copied from it.
    """
    found = _SKIPPED.match(remark.text)
    if found is None:
        return ""
    return f"source.uri: let the cache agents read every directory of it: {found[1][:500]}"


def is_unformatted(stderr: str) -> bool:
    """Whether `status` failed because the volume does not exist yet."""
    return "not formatted" in stderr


def is_store_in_use(problem: str) -> bool:
    """Whether `format` failed because the store has data of a volume of this name."""
    return "is not empty" in problem


def is_outage(problem: str) -> bool:
    """Whether a later try may succeed, by the words of Go's network errors and of object stores."""
    return _OUTAGE.search(problem) is not None


def last_problem(stderr: str) -> str:
    """The last ERROR or FATAL line, without prefix and without user names or keys in URLs."""
    lines = [line for line in stderr.splitlines() if "<FATAL>: " in line or "<ERROR>: " in line]
    causes = [line for line in lines or stderr.splitlines() if _SUM.removeprefix(">: ") not in line]
    line = (causes or lines or stderr.splitlines() or ["no output"])[-1]
    return _SECRET.sub(r"\1", line.partition(">: ")[2] or line)[:500]
