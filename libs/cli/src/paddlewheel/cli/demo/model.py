"""Options and results of a demo run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddlewheel.cli.demo.facts import Facts
    from paddlewheel.cli.demo.view import View
    from paddlewheel.cli.tools import Tools

FULL_DIGITS = 1797
WANTED_ACCURACY = 0.95


@dataclass(frozen=True)
class DemoOptions:
    """Options of a run. With fewer digits or epochs than the defaults, the accuracy is not checked.

    Attributes:
        name: name of the embedded cluster.
        kubeconfig: file of a cluster to use instead.
        serves: False for a run that ends with the model.
    """

    name: str = "demo"
    kubeconfig: str = ""
    nodes: int = 2
    digits: int = FULL_DIGITS
    epochs: int = 8
    model_out: Path = Path("build/model")
    serves: bool = True

    @property
    def judges_accuracy(self) -> bool:
        return self.digits == FULL_DIGITS and self.epochs >= 8


@dataclass(frozen=True)
class Prediction:
    """The answer of the served model for a digit that it has not seen; `chance` is from 0 to 1."""

    digit: int
    predicted: int
    chance: float
    picture: list[str]


@dataclass(frozen=True)
class BadVersion:
    """Requests of a bad version that the gateway counted, and why and when it was rolled back."""

    percent: int
    requests: int
    errors: int
    reason: str
    seconds: float


@dataclass
class Outcome:
    """Filled in stage by stage. Sizes in bytes, times in seconds, accuracy 0 to 1."""

    cluster: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    files_synced: int = 0
    bytes_synced: int = 0
    files_warmed: int = 0
    bytes_warmed: int = 0
    cached_percent: float = 0.0
    epochs: list[dict[str, float]] = field(default_factory=list)
    results: dict[str, float] = field(default_factory=dict)
    facts_published: int = 0
    facts_received: int = 0
    api_writes: dict[str, int] = field(default_factory=dict)
    model: str = ""
    prediction: Prediction | None = None
    bad_version: BadVersion | None = None
    success: bool = False
    shortfalls: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Applied:
    """The uids of the objects of this run; facts of other runs have other uids."""

    sample_set_uid: str
    job_uid: str


@dataclass(frozen=True)
class Run:
    """The objects that every stage after the start uses."""

    options: DemoOptions
    view: View
    outcome: Outcome
    tools: Tools
    facts: Facts
    applied: Applied
