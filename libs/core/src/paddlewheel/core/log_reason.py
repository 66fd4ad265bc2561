"""Finds the cause of a failure at the end of a log. Status, facts and `explain` share this rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_LIMIT = 300
_NOISE = re.compile(
    r"""
      [IWEF]\d{4}[ ]\d\d:                    # glog
    | LAUNCH[ ](INFO|WARNING|ERROR)[ ]\d     # paddle.distributed.launch
    | Container[ ]rank[ ]\d+[ ]status[ ]
    | FLAGS\(name=                           # Paddle's banner of changed flags
    | \W+Modified[ ]FLAGS[ ]detected\W+$
    | \S.*:\d+:[ ]\w*Warning:[ ]             # Python's warnings, each with its source line
    | \s+(\w+\.)*warn\(
    | .*\d+%\|.*\|                           # tqdm
    | [-=+*#|~ ]*(\d+[ ])?[-=+*#|~ ]*$       # rules
    | C\+\+[ ]Traceback[ ]\(                 # Paddle's report of a signal
    | No[ ]stack[ ]trace[ ]in[ ]paddle
    | \s+\[(Hint|TimeInfo|SignalInfo):
    | The[ ]above[ ]exception[ ]was[ ]the[ ]direct[ ]cause
    | During[ ]handling[ ]of[ ]the[ ]above[ ]exception
    """,
    re.VERBOSE,
)
_GROUP_MARGIN = re.compile(r"\s*[|+] ?")
_SUMMARY = "Error Message Summary:"
_FRAME = re.compile(r'(\w+ )*Traceback \(most recent call last\):|\s+File "[^"]+", line \d+')
_EXCEPTION = re.compile(r"[^\W\d][\w.]*(:|$)")
_ABORT = re.compile(r"F\d{4} \d\d:.*?\] (.+)|\s*what\(\):\s*(.+)")
"""A failed check in Paddle, or an uncaught exception of C++."""
_CONSEQUENCE = re.compile(r"FatalError: `(Process abort|Termination) signal`")
"""Signals that Paddle reports after the error that caused them."""


def reason_line(text: str) -> str:
    """The exception or error that ended the program. Without one, the last line that is not noise.

    Returns:
        One line, cut to 300 characters. "" when there is no text.
    """
    lines = _lines(text)
    found = (*lines[-1:], *_without_noise(lines)[-1:], *_errors(lines))
    return found[-1].strip()[:_LINE_LIMIT] if found else ""


def telling_lines(text: str, count: int) -> tuple[str, ...]:
    """The last lines that are not noise. If all lines are noise, the last lines."""
    lines = _lines(text)
    return tuple((_without_noise(lines) or lines)[-count:])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _without_noise(lines: list[str]) -> list[str]:
    return [line for line in lines if not _NOISE.match(line) and line != _SUMMARY]


def _errors(lines: list[str]) -> list[str]:
    """Exceptions and aborts in their order, without signals that they caused."""
    errors = [*_exceptions(lines), *_aborts(lines), *_summaries(lines)]
    return [line for _, line in sorted(errors) if not _CONSEQUENCE.match(line)] or [
        line for _, line in errors
    ]


def _exceptions(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The line below each Python traceback. The beginning of a traceback may be missing."""
    is_inside = is_ignored = False
    for number, raw in enumerate(lines):
        line = _GROUP_MARGIN.sub("", raw, count=1)
        if _FRAME.match(line):
            is_inside = True
        elif line.startswith("Exception ignored in"):
            is_ignored = True
        elif is_inside and not line.startswith(" ") and not _NOISE.match(line):
            if _EXCEPTION.match(line) and not is_ignored:
                yield number, line
            is_inside = is_ignored = False


def _aborts(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines):
        if match := _ABORT.match(line):
            yield number, match[1] or match[2]


def _summaries(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The line below each summary heading of Paddle."""
    for number, line in enumerate(lines):
        if line == _SUMMARY:
            yield from [(number, below) for below in _without_noise(lines[number + 1 :])[:1]]
