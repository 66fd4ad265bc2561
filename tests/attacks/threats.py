"""Each line of the table in docs/security.md, and the rows of `make attacks` in which it is tried.

A unit test holds them against each other: a line that nothing tries fails, and so does an attack of no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

TABLE = Path(__file__).parents[2] / "docs" / "security.md"
_LINE = re.compile(r"^\| (?P<who>[^|]+) \| (?P<tries>[^|]+) \| [^|]+ \|$")


@dataclass(frozen=True)
class Threat:
    """One line.

    Args:
        begin: of what somebody tries, as the table has it.
        rows: names of attacks, with wildcards.
    """

    who: str
    begin: str
    rows: tuple[str, ...]

    def is_tried_in(self, row: str) -> bool:
        """Whether an attack of that name tries it."""
        return any(fnmatchcase(row, pattern) for pattern in self.rows)


def lines() -> Iterator[tuple[str, str]]:
    """Who tries what, of each line of the table."""
    threats = TABLE.read_text().partition("\n## Threats\n")[2].partition("\n## ")[0]
    found = [line for each in threats.splitlines() if (line := _LINE.match(each))]
    return ((line["who"], line["tries"]) for line in found if line["who"] not in ("who", "---"))


def threat_of(who: str, tries: str) -> Threat:
    """Raises LookupError for a line that nothing tries, or that is not told from another."""
    found = [each for each in THREATS if each.who == who and tries.startswith(each.begin)]
    if len(found) != 1:
        raise LookupError(f"{who} | {tries}: {len(found)} entries in tests/attacks/threats.py")
    return found[0]


def untold(rows: Iterable[str]) -> list[str]:
    """Attacks that try no line of the table."""
    return [row for row in rows if not any(threat.is_tried_in(row) for threat in THREATS)]


_ANYONE, _SUBSCRIBER = "any client", "subscriber"
_OUTSIDERS = "any client except operators"

THREATS = (
    Threat(
        "someone with `admin` of a namespace",
        "connect as an agent",
        ("a token connects as an agent*",),
    ),
    Threat(
        _SUBSCRIBER,
        "command a service",
        ("subscriber commands a service by *", "subscriber swallows the deliveries *"),
    ),
    Threat("agent", "the same", ("cache-runtime swallows the deliveries *",)),
    Threat(
        "a service's credential",
        "forge facts or delete streams",
        ("* by republishing", "* takes the subjects of others into a stream"),
    ),
    Threat(_OUTSIDERS, "delete, purge", ("* changes, empties or deletes a stream",)),
    Threat(
        _OUTSIDERS,
        "change, pause, reset",
        (
            "* changes, pauses or deletes a durable",
            "* changes its own stream or durable",
            "* makes a consumer where the services live",
        ),
    ),
    Threat(_OUTSIDERS, "pull from a durable", ("* pulls from another's durable",)),
    Threat(_ANYONE, "acknowledge", ("* acknowledges what another holds",)),
    Threat(
        _ANYONE,
        "have answers sent",
        ("* has answers sent to where it may not publish",),
    ),
    Threat(
        _ANYONE,
        "publish facts, commands",
        (
            "* publishes what is another's",
            "* hears what is not for it",
            "service of others goes beyond *",
            "* connects as a service of others",
        ),
    ),
    Threat(_SUBSCRIBER, "use up consumers", ("subscriber uses up the consumers",)),
    Threat(
        "one team of subscribers",
        "read facts of other namespaces",
        ("team reads facts of namespaces that are not its own", "team takes another team's *"),
    ),
    Threat(
        "an account that may watch a team's namespaces",
        "enter the team's account",
        (
            "subscriber of no team takes a team's deliveries",
            "subscriber of no team uses up a team's connections",
        ),
    ),
    Threat(_SUBSCRIBER, "take live facts", ("*takes * live facts by its queue group",)),
    Threat(
        "any client with access",
        "use up the server's connections",
        ("evaluator uses up the server's connections",),
    ),
    Threat(
        "any client with access",
        "fill the server's memory with subscriptions",
        ("subscriber of no team fills the server's memory with subscriptions",),
    ),
    Threat(
        "any pod of the cluster",
        "read the names, addresses and subjects",
        ("a pod reads the clients of a server",),
    ),
    Threat(
        "any pod of the cluster",
        "keep other clients out",
        ("a flood from one host keeps other hosts out",),
    ),
    Threat(
        "any pod of the cluster, or an object store",
        "report an upload",
        ("any pod posts objectcreated without a token", "store a speaks for b"),
    ),
    Threat(
        "author of a Trigger",
        "read keys of a store",
        ("a namespace follows a source that it is not granted",),
    ),
    Threat(
        "a namespace whose admission webhook answers 500",
        "stop the triggers",
        ("a namespace whose admission webhook answers 500 stops others*",),
    ),
    Threat(
        "author of a data set, or a pod that uses it",
        "read or change files of the node",
        (
            "a set names places of the node",
            "an engine secret names files*",
            "the database *names a directory *",
            "sync *",
            "a link replaces *",
            "a run names keys or state of the agent",
            "the client inherits the environment of the agent",
            "a place of the node is a cache or source*",
        ),
    ),
    Threat(
        "author of a data set",
        "use Secrets of another namespace",
        (
            "a set uses the secret of another namespace",
            "a set uses the keys of the bus",
            "two sets of two namespaces name one cache",
        ),
    ),
    Threat(
        "an administrator of a namespace",
        "run privileged pods",
        ("a set uses the keys of the bus", "a token connects as an agent*"),
    ),
    Threat(
        "a client with the service account of dataset-controller",
        "read every Secret",
        ("the services account reads secrets *", "the services account lists secrets *"),
    ),
)
