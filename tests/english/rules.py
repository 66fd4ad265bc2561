"""The rules of `python -m tests.english`: what a text may not contain, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """A place that breaks a rule."""

    line: int
    found: str
    better: str


_WORDS = {
    "told tells": "reports, sends, shows; for telling apart: distinguish",
    "said says saying": "state the fact; a file: contains, describes, lists; a status: is, reports",
    "heard hears": "received, receives; for 'not heard': no report for 15 s",
    "silent silence": "no report for 15 s; a program: without output; an error: without a log line",
    "tidings": "reports, events",
    "whoever whomever whosoever": "the noun: a client that, anyone who",
    "nobody somebody everybody anybody": "the noun: no client, another user, all replicas",
    "oneself": "the noun: the replica itself",
    "mend mends mended mending": "fix",
    "remedy remedies": "what to do, fix",
    "cure cured heal heals healed": "fix, recover",
    "anew afresh": "again, from the start",
    "lack lacks lacked lacking": "is missing, does not have",
    "stood": "was",
    "wherefore whence thence thereof therein thereby hitherto lest ere": "a modern word",
    "amidst amongst hence thus shall": "a modern word",
    "errand errands": "request, task",
    "culprit guilty": "cause",
    "reckon reckoned reckons": "count, compute",
    "bade bid bids": "asked, requested",
    "befall befalls": "happens to",
    "thrice": "three times",
    "suffice suffices": "is enough",
    "learns": "receives, reads, detects",
    "asleep": "idle, waiting",
}
WORDS = {word: better for words, better in _WORDS.items() for word in words.split()}

_THE_NOUN = "name the noun"
_SENTENCE = "a sentence with a subject, or a noun phrase that completes 'This is ...'"
_START = r"(?:\A|\n\s*\n|[.:;!?]\s+|^\s*(?:[-*|>]|\d+\.)\s*|^#+\s+|\|\s*)"
_PHRASES = {
    _START + r"((?-i:Of))\b(?! course)": _SENTENCE,
    _START + r"((?-i:As))\b(?! (?:soon|long|far|shown|described) )": _SENTENCE,
    r"^\s*\w+: (of|as)\b(?! (?:soon|long) )": _SENTENCE,
    r"\b(those (?:that|who|which))\b": _THE_NOUN,
    r"\b(he who|all who|one who|she who)\b": _THE_NOUN,
    r"\b((?:without|no|the last) word)\b": "report",
    r"\b(stands?)\b(?! (?:for|in for|alone|up|by)\b)": "is",
    r"\b(of late)\b": "recently",
    r"\b(any ?more|once more)\b": "state the rule as it is now; again",
    r"\b(for want of|in its stead|in their stead|save for|but for)\b": "without, instead, except",
    r"\b(nothing but|none but|all but|no \w+ but)\b": "only",
    r"\b(for ever)\b": "forever, without a limit",
    r"\b(let in|lets in)\b": "accept, accepted, rejected",
    r"\b(broken off|breaks? off|broke off)\b": "abort, aborted",
    r"\b(passed over)\b": "skip, skipped",
    r"\b(torn)\b(?! down)": "incomplete, partly written",
    r"\b(looks? again|looked at again|looked again|look at again)\b": "check, reconcile",
    r"\b((?:asks?|asked|wants|wanted) of)\b": "request from, require",
    r"\b(gone on with|goes on with|go on with)\b": "continue",
}
PHRASES = [
    (re.compile(pattern, re.MULTILINE | re.IGNORECASE), better) for pattern, better in _PHRASES.items()
]
_WHAT = re.compile(r"\A\s*(What|Who|Whose|Which|Those)\b(?![^.]*\?)")
_FRAGMENT = re.compile(
    r"\A\s*(Where|By|For|On|Until|With|From|In|At(?! least| most)|Also|And|But|Or|Nor|Not|Than|Under|Since)\b"
    r"[^.,:;]*[.:;]"
)
"""A first clause without a comma: "By partition.", not "In a gang, each pod waits."."""
_TOKEN = re.compile(r"[A-Za-z]+")


def prose_findings(text: str, line: int, *, docstring: bool = False) -> Iterator[Finding]:
    """Words and phrases that a text may not contain; `line` is that of its first line."""
    for match in _TOKEN.finditer(text):
        if better := WORDS.get(match[0].lower()):
            yield Finding(line + text.count("\n", 0, match.start()), match[0], better)
    for pattern, better in PHRASES:
        for match in pattern.finditer(text):
            yield Finding(line + text.count("\n", 0, match.start(1)), " ".join(match[1].split()), better)
    if docstring and (first := _WHAT.match(text)):
        yield Finding(line, first[1], "a noun: The fields that ...")
    elif docstring and (first := _FRAGMENT.match(text)):
        yield Finding(line, first[1], _SENTENCE)


_LITERAL = re.compile(
    r"(?P<comment>#[^\n]*(?:\n[ \t]*#[^\n]*)*)|(?P<prefix>\b[rbfuRBFU]{1,2})?"
    r'(?:"""(?P<long>(?:[^"\\]|\\.|"(?!""))*)"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|\'(?P<single>(?:[^\'\\\n]|\\.)*)\')',
    re.DOTALL,
)
_CODE = re.compile(r"``.*?``|`[^`]*`|\{[^{}]*\}|https?://\S+")


def python_findings(source: str, *, product: bool) -> Iterator[Finding]:
    """Findings in docstrings, comments and, in product code, literals of three words and more."""
    for match in _LITERAL.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if comment := match["comment"]:
            text = re.sub(r"^[ \t]*#[!:]? ?", "", comment, flags=re.MULTILINE)
            yield from prose_findings(_without_code(text), line)
            continue
        body = match["long"] if match["long"] is not None else match["double"] or match["single"] or ""
        is_docstring = match["long"] is not None and not source[: match.start()].rpartition("\n")[2].strip()
        if is_docstring:
            yield from prose_findings(_without_code(body), line, docstring=True)
        elif product and not set(match["prefix"] or "") & set("rRbB") and len(body.split()) >= 3:
            yield from prose_findings(_without_code(body), line)
    yield from time_findings(source)


def _without_code(text: str) -> str:
    return _CODE.sub(lambda match: "`" + "\n" * match[0].count("\n"), text)


def markdown_findings(text: str) -> Iterator[Finding]:
    """Findings outside of code."""
    blank = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    blank = re.sub(r"\]\([^)]*\)|<!--.*?-->|<[^>\n]+>", lambda m: "\n" * m[0].count("\n"), blank, flags=re.S)
    yield from prose_findings(_without_code(blank), 1)


def comment_findings(text: str) -> Iterator[Finding]:
    """Findings in the lines that begin with # or //, of any other language."""
    for match in re.finditer(r"(?:^[ \t]*(?:#|//)[^\n]*\n)+", text, re.MULTILINE):
        body = re.sub(r"^[ \t]*(?:#|//)+ ?", "", match[0], flags=re.MULTILINE)
        yield from prose_findings(_without_code(body), text.count("\n", 0, match.start()) + 1)


_CONSTANT = re.compile(
    r"(?P<before>^#[^\n]*\n)?^(?P<name>_?[A-Z][A-Z0-9_]*)(?:: [\w\[\], .]+)? = (?P<value>[^\n]+)"
    r'(?:\n"""(?P<doc>[^\n]*))?',
    re.MULTILINE,
)
_NUMBER = re.compile(
    r"-?[\d_.]+(?: ?[*/] ?[\w.]+)*$|\(-?[\d_.]+(?:, [\d_.]+)*\)$"
    r"|(?:datetime\.)?timedelta\(|aiohttp.ClientTimeout\("
)
_TIME_NAME = re.compile(
    r"(?:^|_)(PATIENCE|QUIET|SILENCE|WITHIN|AWAY|LATER|AGAIN|POLL|TIMEOUT|GRACE|PAUSE|WAIT|DEADLINE|DELAY|LOOK|INTERVAL|"
    r"PERIOD|SECONDS?|MINUTES?|HOURS?|RECHECK|RESYNC|BACKOFF|TICK|REFILL|EXPIRES|INACTIVE|EVERY|AFTER)(?:_|$)"
)
_TIME_TEXT = re.compile(r"^\W*(?:Seconds|Minutes|Hours|Nanoseconds|Milliseconds|How long|Time)\b")
_GOOD_NAME = re.compile(
    r"_(TIMEOUT|INTERVAL|GRACE)_SECONDS$|BUCKETS$|_PER_SECOND$|^_?(SECOND|MINUTE|HOUR|DAY)$"
)


def constants_of_time(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and value of each module constant that is a time."""
    for match in _CONSTANT.finditer(source):
        value = match["value"].split("  #")[0].strip()
        if not _NUMBER.match(value):
            continue
        text = match["doc"] or (match["before"] or "")
        if (
            "timedelta" in value
            or "Timeout" in value
            or _TIME_NAME.search(match["name"])
            or _TIME_TEXT.match(text)
        ):
            yield source.count("\n", 0, match.start("name")) + 1, match["name"], value


def time_findings(source: str) -> Iterator[Finding]:
    """Constants of time whose name does not say so."""
    for line, name, _ in constants_of_time(source):
        if not _GOOD_NAME.search(name):
            yield Finding(
                line, name, "<WHAT>_TIMEOUT_SECONDS, <WHAT>_INTERVAL_SECONDS or <WHAT>_GRACE_SECONDS"
            )
