"""Finds the cause of a failure at the end of a log. Status, facts and `explain` share this rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_LINE_LIMIT = 300
_LINES_OF_RECOVERY = 8
"""A program that writes more lines after an exception has handled it and continued."""
_NOISE = re.compile(
    r"""
      [IWEF]\d{4}[ ]\d\d:                    # glog
    | LAUNCH[ ](INFO|WARNING|ERROR)[ ]\d     # paddle.distributed.launch
    | Container[ ]rank[ ]\d+[ ]status[ ]
    | FLAGS\(name=                           # Paddle's banner of changed flags
    | \W+Modified[ ]FLAGS[ ]detected\W+$
    | .*\d+%\|.*\|                           # tqdm
    | [-=+*#|~ ]*(\d+[ ])?[-=+*#|~ ]*$       # rules
    | C\+\+[ ]Traceback[ ]\(                 # Paddle's report of a signal
    | No[ ]stack[ ]trace[ ]in[ ]paddle
    | \s+\[(Hint|TimeInfo|SignalInfo):
    | wandb:[ ]
    | The[ ]above[ ]exception[ ]was[ ]the[ ]direct[ ]cause
    | During[ ]handling[ ]of[ ]the[ ]above[ ]exception
    """,
    re.VERBOSE,
)
_GROUP_MARGIN = re.compile(r"\s*[|+] ?")
_SUMMARY = "Error Message Summary:"
_WARNING = re.compile(r"\S.*:\d+:[ ]\w*Warning:[ ]")
_FRAME = re.compile(r'(.*[ ])?Traceback \(most recent call last\):$|\s+File "[^"]+", line \d+')
_EXCEPTION = re.compile(r"[^\W\d][\w.<>]*(:|$)")
_ABORTS = (
    re.compile(r"F\d{4} \d\d:.*?\] (.+)"),  # a failed check in Paddle
    re.compile(r"\s*what\(\):\s*(.+)"),  # an uncaught exception of C++
    re.compile(r"Fatal Python error: (.+)"),
    re.compile(r"ERROR: (Unexpected BUS error encountered in DataLoader worker.*)"),
)
_CONSEQUENCE = re.compile(
    r"""
      FatalError:[ ]`(Process[ ]abort|Termination)[ ]signal`
    | SystemError:[ ]\(Fatal\)[ ]Blocking[ ]queue[ ]is[ ]killed
    | RuntimeError:[ ]DataLoader[ ]\d+[ ]workers[ ]exit[ ]unexpectedly
    | subprocess\.CalledProcessError:
    | (_?queue\.)?Empty$
    | EOFError$
    | KeyError:[ ]'/psm_                     # the resource tracker of multiprocessing
    """,
    re.VERBOSE,
)
"""Errors that follow another error, which caused them."""


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
    """All lines with text, without Python's warnings and the source line below each."""
    kept: list[str] = []
    is_warning = False
    for line in filter(str.strip, text.splitlines()):
        is_warning = bool(_WARNING.match(line)) or (is_warning and line.startswith("  "))
        if not is_warning:
            kept.append(line.rstrip())
    return kept


def _without_noise(lines: list[str]) -> list[str]:
    return [line for line in lines if not _NOISE.match(line) and line != _SUMMARY]


def _errors(lines: list[str]) -> list[str]:
    """Exceptions and aborts in their order, without consequences of another error."""
    numbered = sorted([*_exceptions(lines), *_aborts(lines), *_summaries(lines)])
    errors = [_whole(line, lines[number + 1 :]) for number, line in numbered]
    return [error for error in errors if not _CONSEQUENCE.match(error)] or errors


def _whole(message: str, below: list[str]) -> str:
    """A message that ends with a colon is continued on the next line."""
    return " ".join([message, *(line.strip() for line in below[:1])]) if message.endswith(":") else message


def _exceptions(lines: list[str]) -> list[tuple[int, str]]:
    """The line below each Python traceback, unless the program went on after the last one."""
    found = list(_raised(lines))
    after = lines[found[-1][0] + 1 :] if found else []
    plain = [line for line in _without_noise(after) if not line.startswith((" ", "\t"))]
    return [] if len(plain) > _LINES_OF_RECOVERY else found


def _raised(lines: list[str]) -> Iterator[tuple[int, str]]:
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
        yield from [(number, match[1]) for abort in _ABORTS if (match := abort.match(line))]


def _summaries(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The line below each summary heading of Paddle."""
    for number, line in enumerate(lines):
        if line == _SUMMARY:
            below = enumerate(lines[number + 1 :], number + 1)
            yield from islice(((at, text) for at, text in below if _without_noise([text])), 1)
