"""One client's way in: who is it, may it be what it asks to be, and what may it then do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bus_auth.domain.accounts import check_token, namespace_of, pod_of, read_wish, rights_end
from bus_auth.domain.agents import set_of
from bus_auth.domain.model import Account, Question, Wish
from bus_auth.domain.names import FACTS, ROLES, USE, WATCH
from bus_auth.ports import Authority
from paddlewheel.bus.admin.permissions import AGENT, SUBSCRIBER, role_named
from paddlewheel.bus.admin.rights import Identity, SetReference, rights
from paddlewheel.bus.admin.teams import Team
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
        teams: of subscribers, as the server's configuration has them.
        spread: a number from 0 to 1 for each client, see `rights_end`.
    """

    home: str
    lifetime: int
    teams: tuple[Team, ...]
    spread: Callable[[], float]


class Authorizer:
    """Answers the bus with Kubernetes' word. Raises Permanent (refused) or Retry (unknown for now)."""

    def __init__(self, authority: Authority, policy: Policy, clock: Clock) -> None:
        self._authority, self._policy, self._clock = authority, policy, clock

    async def authorize(self, asking: Asking) -> Grant:
        """What the client may do until when."""
        wish = read_wish(asking.role)
        team = next((team for team in self._policy.teams if team.name == wish.role), None)
        if team is None:
            _check_role(wish)
        check_token(asking.token)
        account = await self._authority.review(asking.token)
        identity = await (self._subscribe(account, team, wish) if team else self._identify(account, wish))
        place, permissions = rights(identity)
        now = int(self._clock.now().timestamp())
        end = rights_end(account, now, self._policy.lifetime, self._policy.spread())
        return Grant(account.user, place, permissions, end)

    async def _identify(self, account: Account, wish: Wish) -> Identity:
        if wish.role == AGENT:
            return Identity(AGENT, set=await self._set_of(account))
        question = Question(USE, ROLES, self._policy.home, wish.role)
        if not await self._authority.allows(account, question):
            raise _not_permitted(account, question)
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

    async def _subscribe(self, account: Account, team: Team, wish: Wish) -> Identity:
        """All facts of the team when the account may watch them all.

        Otherwise those of the namespaces that it asks for, or of its own.
        """
        if not wish.namespaces and await self._forbidden(account, team.namespaces or ("",)) is None:
            return Identity(SUBSCRIBER, team=team.name)
        asked = wish.namespaces or (namespace_of(account),)
        if refused := await self._forbidden(account, asked):
            raise _not_permitted(account, refused)
        if outside := sorted(set(asked) - set(team.namespaces or asked)):
            raise Permanent("NotPermitted", f"team {team.name} gets no facts of {', '.join(outside)}")
        return Identity(SUBSCRIBER, team=team.name, namespaces=frozenset(asked))

    async def _forbidden(self, account: Account, namespaces: Iterable[str]) -> Question | None:
        """The first that the account may not watch; None when it may watch all."""
        for namespace in namespaces:
            question = Question(WATCH, FACTS, namespace)
            if not await self._authority.allows(account, question):
                return question
        return None


def _check_role(wish: Wish) -> None:
    """Raises Permanent for what is neither a team nor a role, and for a role with namespaces."""
    role_named(wish.role)
    if wish.role == SUBSCRIBER or wish.namespaces:
        raise Permanent("UnknownRole", f"{wish.role} is no team of nats.subscribers")


def _not_permitted(account: Account, question: Question) -> Permanent:
    where = f"namespace {question.namespace}" if question.namespace else "all namespaces"
    what = f"{question.resource}.events.paddlepaddle.org"
    what = f"{what} {question.name}" if question.name else what
    return Permanent(
        "NotPermitted", f"{account.user} may not {question.verb} {what} in {where}: no RBAC rule allows it"
    )
