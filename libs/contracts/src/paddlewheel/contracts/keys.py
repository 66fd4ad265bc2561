"""The key of a Kubernetes object: its namespace and name."""

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
    """The namespace and name of an object. The namespace is "" for cluster-wide kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def is_name(name: str) -> bool:
    """Whether an object of a custom resource can have this name. `NAME_FORM` describes valid names."""
    return len(name) <= 253 and _NAME.fullmatch(name) is not None


def is_namespace(name: str) -> bool:
    """Whether a namespace can have this name. `NAMESPACE_FORM` describes valid names."""
    return len(name) <= 63 and _NAMESPACE.fullmatch(name) is not None
