"""What this service needs of Kubernetes."""

from __future__ import annotations

from typing import Protocol

from bus_auth.domain.model import Account, Question, Shown


class Authority(Protocol):
    """The API server's word. Every method raises Retry while it cannot be asked."""

    async def review(self, token: str, shown: Shown) -> Account:
        """Who a token belongs to that says `shown` of itself.

        Raises Permanent when it is not valid for this service.
        """
        ...

    async def allows(self, account: Account, question: Question) -> bool:
        """Whether RBAC allows it."""
        ...
