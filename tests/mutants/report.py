"""From what mutmut found to a score and a list of survivors."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tests.mutants.config import Accepted

KILLED = frozenset({"killed", "timeout", "segfault", "caught by type check"})
IGNORED = frozenset({"skipped"})
_KEY = re.compile(r"(?P<module>[\w.]+)\.x(?:_|ǁ(?P<owner>\w+)ǁ)(?P<function>\w+?)__mutmut_\d+")


@dataclass(frozen=True)
class Survivor:
    """A change of the code that no test noticed; `status` is mutmut's word for it."""

    file: str
    line: int
    function: str
    was: str
    becomes: str
    status: str

    def text(self) -> str:
        """Place and diff."""
        removed = "\n".join(f"    - {line}" for line in self.was.splitlines())
        added = "\n".join(f"    + {line}" for line in self.becomes.splitlines())
        head = f"{self.file}:{self.line}  {self.function} ({self.status})"
        return "\n".join(part for part in (head, removed, added) if part)


@dataclass(frozen=True)
class Outcome:
    """What came of one package.

    Args:
        mutants: all of them but those accepted.
        unused: accepted entries for its files that match no survivor any more.
    """

    package: str
    mutants: int
    survivors: tuple[Survivor, ...]
    accepted: int
    unused: tuple[Accepted, ...]

    @property
    def killed(self) -> int:
        return self.mutants - len(self.survivors)

    @property
    def score(self) -> float:
        """Percent; 0 when nothing was mutated."""
        return 100 * self.killed / self.mutants if self.mutants else 0.0

    def passes(self, goal: float) -> bool:
        return self.score >= goal and not self.unused

    def line(self, goal: float) -> str:
        verdict = "ok" if self.passes(goal) else "short"
        return (
            f"{self.package:<24} {self.mutants:>5} mutants {self.killed:>5} killed {self.score:>6.1f} % "
            f">= {goal:g} %  {self.accepted} accepted  {verdict}"
        )


def judge(
    package: str, statuses: Collection[str], survivors: Iterable[Survivor], accepted: Iterable[Accepted],
    files: Collection[str],
) -> Outcome:  # fmt: skip
    """The outcome of one package.

    Args:
        statuses: of all its mutants.
        files: those that were mutated.
    """
    entries = [entry for entry in accepted if entry.file in files]
    left, used = [], []
    for survivor in survivors:
        match = next((entry for entry in entries if _matches(entry, survivor)), None)
        if match is None:
            left.append(survivor)
        else:
            used.append(match)
    mutants = sum(status not in IGNORED for status in statuses) - len(used)
    unused = tuple(entry for entry in entries if entry not in used)
    return Outcome(package, mutants, tuple(left), len(used), unused)


def _matches(entry: Accepted, survivor: Survivor) -> bool:
    wanted = (entry.file, _squeezed(entry.was), _squeezed(entry.becomes))
    return wanted == (survivor.file, _squeezed(survivor.was), _squeezed(survivor.becomes))


def _squeezed(code: str) -> str:
    return " ".join(code.split())


def lives(status: str) -> bool:
    """No test noticed a mutant of this status."""
    return status not in KILLED | IGNORED


def module_of(key: str) -> str:
    """The module of a mutant by mutmut's name for it. Raises ValueError."""
    return _parts(key)["module"]


def read_survivor(key: str, status: str, diff: str, file: str, source: str) -> Survivor:
    """One survivor.

    Args:
        diff: of the function alone, as mutmut gives it.
        source: the file's text.
    """
    parts = _parts(key)
    lines = diff.splitlines()[2:]
    was = "\n".join(line[1:].strip() for line in lines if line.startswith("-"))
    becomes = "\n".join(line[1:].strip() for line in lines if line.startswith("+"))
    name = ".".join(part for part in (parts["owner"], parts["function"]) if part)
    start, end = _span(source, parts["owner"], parts["function"])
    return Survivor(file, _place(source, start, end, lines), name, was, becomes, status)


def _parts(key: str) -> dict[str, str]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"{key} is no name of a mutant")
    return match.groupdict()


def _span(source: str, owner: str | None, function: str) -> tuple[int, int]:
    """First and last line of a function; of the whole file when it is not found."""
    for body, name in _bodies(ast.parse(source)):
        functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for node in functions:
            if (name, node.name) == (owner, function):
                return node.lineno, node.end_lineno or node.lineno
    return 1, len(source.splitlines())


def _bodies(module: ast.Module) -> Iterator[tuple[list[ast.stmt], str | None]]:
    yield module.body, None
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.body, node.name


def _place(source: str, start: int, end: int, diff: list[str]) -> int:
    """The line of the first change: the one with that text nearest to where the diff says."""
    offset = int(re.findall(r"@@ -(\d+)", diff[0])[0]) - 1
    changed = next((i for i, line in enumerate(diff[1:]) if line[:1] in "-+"), 0)
    guess = start + offset + changed
    text = diff[1 + changed]
    if text.startswith("+"):
        return guess
    own = source.splitlines()
    same = [n for n in range(start, end + 1) if own[n - 1].strip() == text[1:].strip()]
    return min(same, key=lambda n: abs(n - guess), default=guess)
