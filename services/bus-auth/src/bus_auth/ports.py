"""The port to Kubernetes."""

from __future__ import annotations

from typing import Protocol

from bus_auth.domain.model import Account, ResourceAttributes, TokenClaims


class Authority(Protocol):
    """Reviews of tokens and of access. Every method raises Retry while the API server does not answer."""

    async def review(self, token: str, claims: TokenClaims) -> Account:
        """The owner of a token with these claims. Raises Permanent when it is not valid for this service."""
        ...

    async def allows(self, account: Account, attributes: ResourceAttributes) -> bool:
        """Whether RBAC allows the account this action."""
        ...
