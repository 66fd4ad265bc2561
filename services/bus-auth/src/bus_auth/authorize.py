"""One client's way in: who is it, may it be what it asks to be, and what may it then do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bus_auth.domain.accounts import check_token, namespace_of, pod_of, read_wish, rights_end
from bus_auth.domain.agents import set_of
from bus_auth.domain.model import Account, Question, Wish
from bus_auth.domain.names import FACTS, ROLES, USE, WATCH
from bus_auth.ports import Authority
from paddlewheel.bus.admin.permissions import AGENT, SUBSCRIBER, role_named
from paddlewheel.bus.admin.rights import Identity, SetReference, rights
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.contracts.objects import uid_of
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent


@dataclass(frozen=True)
class Policy:
    """How rights are given.

    Args:
        home: namespace of the release, in which roles are granted.
        lifetime: seconds until a client is disconnected and must show a fresh token.
        spread: a number from 0 to 1 for each client, see `rights_end`.
    """

    home: str
    lifetime: int
    spread: Callable[[], float]


class Authorizer:
    """Answers the bus with Kubernetes' word. Raises Permanent (refused) or Retry (unknown for now)."""

    def __init__(self, authority: Authority, policy: Policy, clock: Clock) -> None:
        self._authority, self._policy, self._clock = authority, policy, clock

    async def authorize(self, asking: Asking) -> Grant:
        """What the client may do until when."""
        wish = read_wish(asking.role)
        role_named(wish.role)
        check_token(asking.token)
        account = await self._authority.review(asking.token)
        identity = await self._identify(account, wish)
        place, permissions = rights(identity)
        now = int(self._clock.now().timestamp())
        end = rights_end(account, now, self._policy.lifetime, self._policy.spread())
        return Grant(account.user, place, permissions, end)

    async def _identify(self, account: Account, wish: Wish) -> Identity:
        if wish.role == AGENT:
            return Identity(AGENT, set=await self._set_of(account))
        if wish.role == SUBSCRIBER:
            return Identity(SUBSCRIBER, namespaces=await self._watched(account, wish.namespaces))
        question = Question(USE, ROLES, self._policy.home, wish.role)
        if not await self._authority.allows(account, question):
            raise _forbidden(account, question)
        return Identity(wish.role)

    async def _set_of(self, account: Account) -> SetReference:
        """By the API server's objects, never by what the client says."""
        bound = pod_of(account)
        try:
            key = set_of(bound, await self._authority.pod(bound.key))
            found = await self._authority.sample_set(key)
        except NotFound as error:
            raise Permanent("NotAnAgent", str(error)) from error
        return SetReference(key.namespace, uid_of(found))

    async def _watched(self, account: Account, asked: tuple[str, ...]) -> frozenset[str] | None:
        """The namespaces asked for; otherwise all (None), or else the account's own."""
        if not asked:
            if await self._authority.allows(account, Question(WATCH, FACTS, "")):
                return None
            asked = (namespace_of(account),)
        for namespace in asked:
            question = Question(WATCH, FACTS, namespace)
            if not namespace or not await self._authority.allows(account, question):
                raise _forbidden(account, question)
        return frozenset(asked)


def _forbidden(account: Account, question: Question) -> Permanent:
    where = f"namespace {question.namespace}" if question.namespace else "all namespaces"
    what = f"{question.resource}.events.paddlepaddle.org"
    what = f"{what} {question.name}" if question.name else what
    return Permanent(
        "NotPermitted", f"{account.user} may not {question.verb} {what} in {where}: no RBAC rule allows it"
    )
