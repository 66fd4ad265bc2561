"""The address of an object, used by queues, stores and logs alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME_FORM = "at most 253 of a-z, 0-9, '-' and '.', with a letter or digit at both ends, as in resnet-50"
NAMESPACE_FORM = "at most 63 of a-z, 0-9 and '-', with a letter or digit at both ends, as in team-a"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAMESPACE = re.compile(_LABEL)


@dataclass(frozen=True, order=True)
class Key:
    """Namespace and name; namespace is "" for cluster-wide kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def is_name(name: str) -> bool:
    """An object of a custom resource can have this name: `NAME_FORM`."""
    return len(name) <= 253 and _NAME.fullmatch(name) is not None


def is_namespace(name: str) -> bool:
    """A namespace can have this name: `NAMESPACE_FORM`."""
    return len(name) <= 63 and _NAMESPACE.fullmatch(name) is not None
