"""Reading the output of the client.

`juicefs --verbose --log-id N sync --dry` can list every object store: with `--dry --force-update` and an
empty destination, each object that passes the filters is logged as `Will copy KEY (SIZE bytes)`. The log id
is random for each listing, so no key can forge a record; a key with newlines spans lines until the next one.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path

_SUMS = ("failed to handle ", "listing failed, stop syncing")
"""The last line of a sync sums up what failed; the ones before say why."""
_FAILED = re.compile(r"failed to handle (\d+) objects")
RECORD_MAX, _MARK_MAX = 64 << 10, 256
"""Bytes that are kept of one record, whose name and traces may be long, and more than two marks have."""
TEXT_MAX = 16 << 10
"""Characters that a copy keeps of what it is told of one object: a name twice, and the beginning of what the
store has said, which may be long."""
_OTHERS = 100
"""Last problems that are kept of those that concern no single key."""
_COPY = "Failed to copy object "
_FAILED_ONE = "Failed to copy object {0}: "
_NAMING = (_COPY, "Failed to copy data of ")
_VOLUME_FAILED = re.compile(r"input/output error( \[\w+@[\w.]+:\d+\])?")
_TORN = tuple(f"{_FAILED_ONE}{said}" for said in ("{0} changed during sync.", "check {0} in "))
"""What was copied, and has changed in the source meanwhile, or may have: nobody could ask."""
_HEAD, _HEAD_LATER, _SUMMED = "head ", "Head src ", "Found: "
_SKIPPED = re.compile(r"skip (.*/: .*)", re.DOTALL)
_FOUND = re.compile(r"Found: (\d+),")
"""Counts the objects that a sync has dealt with, skipped ones among them."""
_KEPT = re.compile(r"Found: .*\bskipped: (\d+)")
_LEFT = re.compile(r"Head src (.*): skipped \[\w+@[\w.]+:\d+\]", re.DOTALL)
"""That it was there a moment ago is no failure to the client, whose sum has it among the skipped ones."""
_UNREADABLE = re.compile(r'ignore invalid pattern: (?:"-(\w+)" )?(".*") \[')
_OUTAGE = re.compile(
    r"connection (refused|reset)|i/o timeout|\bEOF\b|broken pipe|no such host|no route to host|unreachable"
    r"|server misbehaving|timeout|timed out|deadline exceeded|try again|temporar"
    r"|\b(500|502|503|504)\b|InternalError|ServiceUnavailable|SlowDown|RequestTimeout|ServerNotInitialized",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket")
_URL = re.compile(r"\w+://[^\s\"]+")
_SECRET = re.compile(r"(://)[^/\s@]*@")
_PREFIX = re.compile(r"(\[\w+\] )?([\d/]+ [\d:.]+ )?(juicefs\[\d+\] )?<(ERROR|FATAL)>: ")
_WILL_COPY = b"Will copy "
_OBJECT = re.compile(_WILL_COPY + rb"(.*) \((\d+) bytes\) \[\w+@[\w.]+:\d+\]", re.DOTALL)


@dataclass(frozen=True)
class Problem:
    """A line of level ERROR or FATAL, without its prefix."""

    text: str


@dataclass(frozen=True)
class Remark:
    """A line of level WARNING, the sum at the end, or that an object has left the source while it was to be
    copied, without its prefix."""

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
        last = max((m.start() for m in self._mark.finditer(self._buffer)), default=0)
        complete, self._buffer = self._buffer[:last], self._buffer[last:]
        if len(self._buffer) > RECORD_MAX + 2 * _MARK_MAX:
            # The next mark may have begun.
            self._buffer = self._buffer[:RECORD_MAX] + self._buffer[-_MARK_MAX:]
        return self._parse(complete)

    def close(self) -> list[Record]:
        """The last record."""
        rest, self._buffer = self._buffer, b""
        return self._parse(rest)

    def _parse(self, text: bytes) -> list[Record]:
        found = (_record(body) for body in self._mark.split(text))
        return [record for record in found if record is not None]


def _is_remark(level: bytes, message: bytes) -> bool:
    """Or it is one of the many lines that nobody reads."""
    if level == b"<DEBUG>":
        return message.startswith(b"Head src ")
    return level == b"<WARNING>" or (level == b"<INFO>" and message.startswith(b"Found: "))


def _record(body: bytes) -> Record | None:
    """Of one that is too long, the beginning. No store and no file system has such names."""
    level, _, message = body[:RECORD_MAX].rstrip(b"\n").partition(b": ")
    if len(body) > RECORD_MAX and message.startswith(_WILL_COPY):
        return Problem(f"the name of an object has more than {RECORD_MAX} bytes")
    if level in (b"<ERROR>", b"<FATAL>"):
        return Problem(message.decode(errors="replace"))
    if _is_remark(level, message):
        return Remark(message.decode(errors="replace"))
    match = _OBJECT.fullmatch(message)
    return File(encode_path(match[1]), int(match[2])) if match else None


class CopyLog:
    """What the log of a copy says, read while it is written: it is as long as its keys are many, and none of
    those that it names may be missed."""

    def __init__(self, log_id: str) -> None:
        self._parser = ListingParser(log_id)
        self._others = deque[str](maxlen=_OTHERS)
        self._failures: list[str] = []
        self.remarks: list[str] = []

    @property
    def problems(self) -> list[str]:
        """Those of single keys first."""
        return [*self._failures, *self._others]

    @property
    def cause(self) -> str:
        """The last one that is no sum, without secrets, "" when there is none."""
        return cause_of(self.problems) if self.problems else ""

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
        """Some end with a trace of calls."""
        if text.startswith(_COPY):
            self._failures.append(text[:TEXT_MAX])
        else:
            self._others.append(text.partition("\n")[0][:TEXT_MAX])


def failed_copies(log: CopyLog, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """Which of the keys a failed command did not copy, with the reason.

    All of them, unless its log is about as many as it counts.
    """
    return {key: cause_of([text]) for key, text in _failed(log, keys).items()}


def _failed(log: CopyLog, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """With the lines as they are: what is said of them is shortened."""
    counted = next((int(found[1]) for text in log.problems if (found := _FAILED.match(text))), None)
    if counted is not None and _named(log, keys) >= counted:
        blamed = _blamed(log.problems, keys, _COPY, ": ")
        return {key: text for some, text in blamed.items() for key in some}
    return dict.fromkeys(keys, log.cause)


def _named(log: CopyLog, keys: Sequence[bytes]) -> int:
    """How many failures of these keys the log names, and of what was listed below those for which the store
    did not answer: the client counts that as well."""
    below = tuple(f"{_COPY}{key.decode(errors='replace')}" for key in unanswered_copies(log, keys))
    known = _by_name(keys)
    return sum(
        text.startswith(below) or any(True for _ in _known_in(text, _COPY, ": ", known))
        for text in log.problems
    )


def away_copies(log: CopyLog, keys: Sequence[bytes]) -> frozenset[bytes]:
    """Which of the keys a failed command did not copy because a store or the database is away. What the names
    say makes no outage, so a problem that names another key counts for none.

    Of its own volume the client says there only that it has failed, and elsewhere why.
    """
    is_volume_away = any(is_outage(text) for text in log.problems if not text.startswith(_NAMING))
    causes = {key: _unnamed(problem, key) for key, problem in _failed(log, keys).items()}
    return frozenset(
        key
        for key, cause in causes.items()
        if is_outage(cause) or (is_volume_away and _VOLUME_FAILED.fullmatch(cause))
    )


def _unnamed(problem: str, key: bytes) -> str:
    name = key.decode(errors="replace")
    start = _FAILED_ONE.format(name)
    if problem.startswith(_COPY) and not problem.startswith(start):
        return ""
    return _without(name, problem.removeprefix(start))


def _without(name: str, text: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "", text)


def torn_copies(log: CopyLog, keys: Sequence[bytes]) -> list[bytes]:
    """Which of the keys have, or may have, changed in the source while they were copied. What has arrived may
    be parts of two versions. Not those whose line may be about another key: of a name that reads alike, or is
    longer."""
    known = _by_name(keys)
    torn = []
    for text in log.problems:
        longest = max(_known_in(text, _COPY, ": ", known), key=len, default="")
        starts = tuple(each.format(longest) for each in _TORN)
        if longest and text.startswith(starts) and len(known[longest]) == 1:
            torn += known[longest]
    return torn


def missing_copies(log: CopyLog, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """Which of the keys a command did not find: it only warns of what has left the source.

    All of them, unless its log is about as many as its sum lacks. It lacks less where the store did not
    answer for some: the client lists what is below these, and counts that.
    """
    found, unanswered = found_copies(log), unanswered_copies(log, keys)
    blamed = _blamed(log.remarks, keys, _HEAD, " from ")
    left = dict.fromkeys(_left(log, keys), "has left the source")
    if found is not None and len(keys) - found <= len(blamed) and (found <= len(keys) or unanswered):
        there = "has left the source, or cannot be read there"
        return {**dict.fromkeys(chain.from_iterable(blamed), there), **unanswered, **left}
    some = "an unknown number" if found is None else str(found)
    return dict.fromkeys(keys, f"the client found {some} of {len(keys)} objects: some have left the source")


def unanswered_copies(log: CopyLog, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """For which of the keys the store did not answer, with the reason: whether it has them is not known."""
    blamed = _blamed(log.remarks, keys, _HEAD, " from ")
    causes = {some: [_unanswered(text, key) for key in some] for some, text in blamed.items()}
    return {
        key: cause_of([f"the source does not answer for it: {cause}"])
        for some, said in causes.items()
        if all(is_outage(cause) for cause in said)
        for key, cause in zip(some, said, strict=True)
    }


def _unanswered(text: str, key: bytes) -> str:
    """The error, without the address and the name, which may have any words."""
    name = key.decode(errors="replace")
    return _without(name, text.removeprefix(f"{_HEAD}{name} from ").partition(": ")[2])


def _left(log: CopyLog, keys: Sequence[bytes]) -> Iterator[bytes]:
    """Those that were there when the client looked, and not when it was to copy them."""
    known = _by_name(keys)
    for text in log.remarks:
        if found := _LEFT.fullmatch(text):
            yield from known.get(found[1], ())


def found_copies(log: CopyLog) -> int | None:
    """How many objects a command has found in the source; None when it ended without its sum."""
    return _summed(_FOUND, log.remarks)


def kept_copies(log: CopyLog) -> int | None:
    """How many objects a command has left as they were; None when it ended without its sum."""
    skipped = _summed(_KEPT, log.remarks)
    return None if skipped is None else max(0, skipped - sum(map(bool, map(_LEFT.fullmatch, log.remarks))))


def _summed(pattern: re.Pattern[str], remarks: Sequence[str]) -> int | None:
    return next((int(summed[1]) for text in remarks if (summed := pattern.match(text))), None)


def _blamed(
    texts: Iterable[str], keys: Iterable[bytes], start: str, end: str
) -> Mapping[frozenset[bytes], str]:
    """The keys that a line may be about, with the line: one of them was meant."""
    known = _by_name(keys)
    blamed: dict[frozenset[bytes], str] = {}
    for text in texts:
        some = frozenset(key for name in _known_in(text, start, end, known) for key in known[name])
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


def _known_in(text: str, start: str, end: str, known: Mapping[str, list[bytes]]) -> Iterator[str]:
    """Which known names may be between `start` and `end`; a name may contain what ends it."""
    if text.startswith(start):
        longest = max(map(len, known), default=0)
        rest = text[len(start) : len(start) + longest + len(end)]
        names = (rest[: found.start()] for found in re.finditer(re.escape(end), rest))
        yield from (name for name in names if name in known)


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
    """Whether a later try may succeed, by the words of Go's network errors and of object stores. Names of
    buckets and objects have such words, too."""
    said = _URL.sub("", problem)
    return _OUTAGE.search(said) is not None and _REFUSED.search(said) is None


def logged_problem(log: bytes, log_id: str) -> str:
    """The last error of a command that has ended, "" without one. No name can look like one."""
    problems = [record.text for record in records(log, log_id) if isinstance(record, Problem)]
    return cause_of(problems) if problems else ""


def last_problem(stderr: str) -> str:
    """The same of a log without an id, or else the last line of it."""
    lines = [line for line in stderr.split("\n") if line.strip()]
    return cause_of([problem for line in lines if (problem := problem_of(line))] or lines)


def problem_of(line: str) -> str:
    """What a line of level ERROR or FATAL says, "" for others. Only its beginning decides: what follows may
    be the name of a file."""
    prefix = _PREFIX.match(line)
    return line[prefix.end() :] if prefix else ""


def cause_of(problems: Sequence[str]) -> str:
    """The last one that is no sum, without user names or keys in URLs: one line of 500 characters at most."""
    causes = [text for text in problems if not text.startswith(_SUMS)]
    text = (causes or problems or ["no output"])[-1]
    # A name may have newlines; of others, these begin a trace of calls.
    shown = text.replace("\n", " ") if text.startswith(_COPY) else text.partition("\n")[0]
    return _SECRET.sub(r"\1", shown)[:500]
