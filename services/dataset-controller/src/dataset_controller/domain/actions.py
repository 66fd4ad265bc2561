"""What a plan may ask for. Values only; `effects.py` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey

Child = Literal[
    "PersistentVolume", "PersistentVolumeClaim", "Service", "StatefulSet", "Secret", "Pod", "Node"
]
OwnKind = Literal["SampleSet", "SampleJob"]


@dataclass(frozen=True)
class Create:
    """Make a child; one that exists already is left alone (it is checked on the next observation)."""

    kind: Child
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Patch:
    """Merge into an object; one that is gone is left alone."""

    kind: Child | OwnKind
    key: Key
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class Delete:
    """Delete a child, only the one of this uid."""

    kind: Child
    key: Key
    uid: str


@dataclass(frozen=True)
class WriteRun:
    """Put the run's record on the bus unless it stands there."""

    run: RunSpec


@dataclass(frozen=True)
class CancelRun:
    """Ask the runtime to stop the run."""

    run: RunKey


@dataclass(frozen=True)
class ForgetRun:
    """Remove the run's records and queued chunks."""

    run: RunKey


@dataclass(frozen=True)
class ForgetSet:
    """Remove every record and queued chunk of the set."""

    set_uid: str


Action = Create | Patch | Delete | WriteRun | CancelRun | ForgetRun | ForgetSet


@dataclass(frozen=True)
class Notice:
    """One Kubernetes event about the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
