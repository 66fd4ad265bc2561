"""Reading the output of the client.

`juicefs --verbose --log-id N sync --dry` can list every object store: with `--dry --force-update` and an
empty destination, each object that passes the filters is logged as `Will copy KEY (SIZE bytes)`. The log id
is random for each listing, so no key can forge a record; a key with newlines spans lines until the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path

_SUMS = ("failed to handle ", "listing failed, stop syncing")
"""The last line of a sync sums up what failed; the ones before say why."""
RECORD_MAX, _MARK_MAX = 64 << 10, 256
"""Bytes that are kept of one record, whose name and traces may be long, and more than two marks have."""
COPY = "Failed to copy object "
"""Begins what is said of one that was to be copied."""
_SKIPPED = re.compile(r"skip (.*/: .*)", re.DOTALL)
_UNREADABLE = re.compile(r'ignore invalid pattern: (?:"-(\w+)" )?(".*") \[')
_OUTAGE = re.compile(
    r"connection (refused|reset)|i/o timeout|\bEOF\b|broken pipe|no such host|no route to host|unreachable"
    r"|server misbehaving|timeout|timed out|deadline exceeded|try again|temporar"
    r"|\b(status|status ?code|code|response|error|http/\S+)\W{1,3}50[0234]\b|\b50[0234] \(Code: "
    r"|InternalError|ServiceUnavailable|SlowDown|RequestTimeout|ServerNotInitialized",
    re.IGNORECASE,
)
_ON_PATH = re.compile(
    r"\b(open|openat|l?stat|read|readdirent|fdopendir|mkdir|rename|link|unlink|chtimes) /.*: "
)
"""Before what Go's errors say of a file."""
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
        """What is before the first mark is no line of this log."""
        found = (_record(body) for body in self._mark.split(text)[1:])
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


def records(log: bytes, log_id: str) -> list[Record]:
    """Of the log of a command that has ended."""
    parser = ListingParser(log_id)
    return [*parser.feed(log), *parser.close()]


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
    buckets, objects and files have such words, too."""
    said = _ON_PATH.sub("", _URL.sub("", problem))
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
    shown = text.replace("\n", " ") if text.startswith(COPY) else text.partition("\n")[0]
    return _SECRET.sub(r"\1", shown)[:500]
