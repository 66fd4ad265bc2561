"""A client's account in Kubernetes, and the role that it requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """The owner of a token, from the API server's review.

    Args:
        user: `system:serviceaccount:<namespace>:<name>`, or the name of another user.
        expires: Unix time of the token's end.
    """

    user: str
    expires: int
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenClaims:
    """The claims of a token, unverified: enough to refuse the token, not to accept it.

    Args:
        expires: Unix time.
    """

    audiences: tuple[str, ...]
    expires: int


@dataclass(frozen=True)
class ResourceAttributes:
    """An action that RBAC may allow, as in a SubjectAccessReview; `namespace` "" = in all namespaces."""

    verb: str
    resource: str
    namespace: str
    name: str = ""


@dataclass(frozen=True)
class RequestedRole:
    """A requested role, and for `subscriber` namespaces; () = those of its team, or its own."""

    role: str
    namespaces: tuple[str, ...] = ()
