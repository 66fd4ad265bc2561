"""Reading what clients send and what the API server says about their tokens."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bus_auth.domain.model import Account, Shown, Wish
from paddlewheel.contracts.bus_tokens import MAX_NAMESPACES
from paddlewheel.contracts.subjects import token as checked
from paddlewheel.core.errors import Permanent

MAX_TOKEN = 4 * 1024
"""Bytes; tokens of service accounts have about 1,200, and the server takes no more in one line."""
SERVICE_ACCOUNT = "system:serviceaccount:"


def read_wish(user: str) -> Wish:
    """What a client's user name asks for: `<role>` or `subscriber.<namespace>.<namespace>...`.

    Raises:
        Permanent: not such a name.
    """
    role, *asked = user.split(".")
    namespaces = tuple(dict.fromkeys(asked))
    if not role or len(namespaces) > MAX_NAMESPACES:
        raise Permanent(
            "UnknownRole",
            "connect with the role as user and the token as password: subscriber, or subscriber.<namespace>, "
            f"with {MAX_NAMESPACES} namespaces at most",
        )
    return Wish(role, tuple(checked(name, "namespace") for name in namespaces))


def check_token(token: str, audience: str, now: int) -> Shown:
    """What a token says of itself. Raises Permanent for what the API server need not be asked about."""
    if not token:
        raise _unauthenticated("no token was given")
    if len(token) > MAX_TOKEN:
        raise _unauthenticated(f"the token has more than {MAX_TOKEN} bytes")
    shown = _read_token(token)
    if audience not in shown.audiences:
        raise _unauthenticated(f"the token was not made for the audience {audience}")
    if shown.expires <= now:
        raise _unauthenticated(f"the token expired {now - shown.expires} s ago")
    return shown


def _read_token(token: str) -> Shown:
    """Raises Permanent."""
    try:
        _, body, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        audiences = claims["aud"]
        return Shown((audiences,) if isinstance(audiences, str) else tuple(audiences), int(claims["exp"]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unauthenticated("it is no token of a service account") from error


def read_review(status: Mapping[str, Any], shown: Shown, audience: str) -> Account:
    """Who the token belongs to, by a TokenReview's status.

    Raises:
        Permanent: the API server does not vouch for the token, or not for this audience.
    """
    if not status.get("authenticated"):
        raise _unauthenticated("the API server does not accept the token: expired, revoked or foreign")
    if audience not in (status.get("audiences") or ()):
        # An authenticator that knows no audiences leaves them out: its tokens are the API server's own.
        raise _unauthenticated(f"the token was not made for the audience {audience}")
    user = status.get("user") or {}
    return Account(
        user=str(user.get("username", "")),
        uid=str(user.get("uid", "")),
        groups=tuple(user.get("groups") or ()),
        extra={name: tuple(values) for name, values in (user.get("extra") or {}).items()},
        expires=shown.expires,
    )


def _unauthenticated(why: str) -> Permanent:
    return Permanent("NotAuthenticated", why)


def namespace_of(account: Account) -> str:
    """The service account's namespace; "" for others."""
    if not account.user.startswith(SERVICE_ACCOUNT):
        return ""
    return account.user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]


def queue_of(account: Account) -> tuple[str, ...]:
    """Tokens that begin the names of the account's queue groups: `<namespace>`, `<name>`. Nobody shares them.

    Dots of the name become underscores, which no name has. Others than service accounts have `USER` and a
    digest: their names may hold anything.
    """
    if namespace := namespace_of(account):
        return namespace, account.user.rpartition(":")[2].replace(".", "_")
    return "USER", hashlib.sha256(account.user.encode()).hexdigest()[:32]


def rights_end(account: Account, now: int, lifetime: int, spread: float) -> int:
    """Unix time at which the client is disconnected: with its token at the latest.

    Args:
        lifetime: seconds, at most.
        spread: 0 to 1: how much of the last fifth of `lifetime` is left out, so that clients that came
            together do not return together.
    """
    return min(now + int(lifetime * (1 - 0.2 * spread)), account.expires)
