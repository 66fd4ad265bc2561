"""Who a client is by Kubernetes, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """Whoever a token belongs to, as the API server has it.

    Args:
        user: `system:serviceaccount:<namespace>:<name>`, or a person's name.
        expires: Unix time of the token's end.
    """

    user: str
    expires: int
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """What a token says of itself, unchecked: enough to refuse it, never to accept it.

    Args:
        expires: Unix time.
    """

    audiences: tuple[str, ...]
    expires: int


@dataclass(frozen=True)
class Question:
    """A question to Kubernetes' RBAC; `namespace` "" = in all namespaces."""

    verb: str
    resource: str
    namespace: str
    name: str = ""


@dataclass(frozen=True)
class Wish:
    """What a client asks for: a role, and of a subscriber the namespaces, () = as many as it may."""

    role: str
    namespaces: tuple[str, ...] = ()
