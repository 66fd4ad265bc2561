"""Reads the user names and tokens of clients, and the API server's reviews of the tokens."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bus_auth.domain.model import Account, RequestedRole, TokenClaims
from paddlewheel.contracts.bus_tokens import AUDIENCE, MAX_NAMESPACES
from paddlewheel.contracts.subjects import token as checked
from paddlewheel.core.errors import Permanent

MAX_TOKEN = 4 * 1024
"""Bytes; tokens of service accounts have about 1,200, and the server takes no more in one line."""
SERVICE_ACCOUNT = "system:serviceaccount:"


def read_requested_role(user: str) -> RequestedRole:
    """Read a client's user name: `<role>` or `subscriber.<namespace>.<namespace>...`.

    Raises:
        Permanent: the name has another form.
    """
    role, *asked = user.split(".")
    namespaces = tuple(dict.fromkeys(asked))
    if not role or len(namespaces) > MAX_NAMESPACES:
        raise Permanent(
            "UnknownRole",
            "connect with the role as user and the token as password: subscriber, or subscriber.<namespace>, "
            f"with {MAX_NAMESPACES} namespaces at most",
        )
    return RequestedRole(role, tuple(checked(name, "namespace") for name in namespaces))


def check_token(token: str, now: int) -> TokenClaims:
    """Read a token's claims. Raises Permanent for a missing, foreign or expired token."""
    if not token:
        raise _unauthenticated("no token was given")
    if len(token) > MAX_TOKEN:
        raise _unauthenticated(f"the token has more than {MAX_TOKEN} bytes")
    claims = _read_token(token)
    if AUDIENCE not in claims.audiences:
        raise _unauthenticated(f"the token was not made for the audience {AUDIENCE}")
    if claims.expires <= now:
        raise _unauthenticated(f"the token expired {now - claims.expires} s ago")
    return claims


def _read_token(token: str) -> TokenClaims:
    """Raises Permanent."""
    try:
        _, body, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        audiences = claims["aud"]
        return TokenClaims(
            (audiences,) if isinstance(audiences, str) else tuple(audiences), int(claims["exp"])
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unauthenticated("the token is not a service-account token") from error


def read_review(status: Mapping[str, Any], claims: TokenClaims) -> Account:
    """The owner of a token, from the status of its TokenReview.

    Raises:
        Permanent: the API server does not accept the token, or not for this audience.
    """
    if not status.get("authenticated"):
        raise _unauthenticated("the API server does not accept the token: expired, revoked or foreign")
    if AUDIENCE not in (status.get("audiences") or ()):
        # An authenticator without audiences leaves them out: its tokens are for the API server only.
        raise _unauthenticated(f"the token was not made for the audience {AUDIENCE}")
    user = status.get("user") or {}
    return Account(
        user=str(user.get("username", "")),
        uid=str(user.get("uid", "")),
        groups=tuple(user.get("groups") or ()),
        extra={name: tuple(values) for name, values in (user.get("extra") or {}).items()},
        expires=claims.expires,
    )


def _unauthenticated(why: str) -> Permanent:
    return Permanent("NotAuthenticated", why)


def namespace_of(account: Account) -> str:
    """The namespace of a service account; "" for another user."""
    if not account.user.startswith(SERVICE_ACCOUNT):
        return ""
    return account.user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]


def queue_of(account: Account) -> tuple[str, ...]:
    """The first tokens of the names of the account's own queue groups: `<namespace>`, `<name>`.

    Dots of the name become underscores, which Kubernetes names cannot have. Users that are not service
    accounts have `USER` and a digest, because their names may contain any character.
    """
    if namespace := namespace_of(account):
        return namespace, account.user.rpartition(":")[2].replace(".", "_")
    return "USER", hashlib.sha256(account.user.encode()).hexdigest()[:32]


def rights_end(account: Account, now: int, lifetime: int, spread: float) -> int:
    """Unix time at which the client is disconnected, at the latest when its token expires.

    Args:
        lifetime: the longest time, in seconds.
        spread: from 0 to 1, the share of the last fifth of `lifetime` that is cut off, so that clients that
            connected together do not reconnect together.
    """
    return min(now + int(lifetime * (1 - 0.2 * spread)), account.expires)
