"""What `tests/mutants.toml` says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "mutants.toml"


@dataclass(frozen=True)
class Package:
    """Code that is mutated together, and the unit tests that must notice.

    Args:
        source: a source folder of the workspace, relative to the repository.
        mutate: files below it, as glob patterns.
        tests: folders or files of unit tests.
    """

    name: str
    source: str
    mutate: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Accepted:
    """A mutant that no test needs to kill: the lines as they are, as they become, and why that is right."""

    file: str
    was: str
    becomes: str
    why: str


@dataclass(frozen=True)
class Config:
    """Args:
    goal: percent of the mutants of each package that must be killed.
    """

    goal: float
    packages: Mapping[str, Package]
    accepted: tuple[Accepted, ...]


def load(file: Path = FILE) -> Config:
    """Raises TypeError or KeyError when the file has another shape."""
    found = tomllib.loads(file.read_text())
    packages = {
        name: Package(name, fields["source"], tuple(fields["mutate"]), tuple(fields["tests"]))
        for name, fields in found["packages"].items()
    }
    return Config(found["goal"], packages, tuple(Accepted(**entry) for entry in found.get("accepted", ())))
