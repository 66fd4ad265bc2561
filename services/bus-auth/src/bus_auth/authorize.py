"""One client's way in: who is it, may it be what it asks to be, and what may it then do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bus_auth.domain.accounts import check_token, namespace_of, pod_of, queue_of, read_wish, rights_end
from bus_auth.domain.agents import set_of
from bus_auth.domain.model import Account, Question, Wish
from bus_auth.domain.names import FACTS, ROLES, TEAMS, USE, WATCH
from bus_auth.ports import Authority
from paddlewheel.bus.admin.permissions import AGENT, OURS, SUBSCRIBER, Declared
from paddlewheel.bus.admin.rights import Identity, SetReference, Watch, rights
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.contracts.objects import uid_of
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent


@dataclass(frozen=True)
class Policy:
    """How rights are given.

    Args:
        home: namespace of the release, in which roles and teams are granted.
        audience: for which tokens must have been made.
        lifetime: seconds until a client is disconnected and must show a fresh token.
        teams: of subscribers, as the server's configuration has them.
        spread: a number from 0 to 1 for each client, see `rights_end`.
        declared: everything that is on the bus.
    """

    home: str
    audience: str
    lifetime: int
    teams: tuple[Team, ...]
    spread: Callable[[], float]
    declared: Declared = OURS


class Authorizer:
    """Answers the bus with Kubernetes' word. Raises Permanent (refused) or Retry (unknown for now)."""

    def __init__(self, authority: Authority, policy: Policy, clock: Clock) -> None:
        self._authority, self._policy, self._clock = authority, policy, clock

    async def authorize(self, asking: Asking) -> Grant:
        """What the client may do until when."""
        wish = read_wish(asking.role)
        team = next((team for team in self._policy.teams if team.name == wish.role), None)
        _check_wish(wish, team, self._policy.declared)
        now = int(self._clock.now().timestamp())
        shown = check_token(asking.token, self._policy.audience, now)
        account = await self._authority.review(asking.token, shown)
        identity = await self._identify(account, wish, team)
        place, permissions = rights(identity, self._policy.declared)
        end = rights_end(account, now, self._policy.lifetime, self._policy.spread())
        return Grant(account.user, place, permissions, end)

    async def _identify(self, account: Account, wish: Wish, team: Team | None) -> Identity:
        if wish.role == AGENT:
            return Identity(AGENT, set=await self._set_of(account))
        if wish.role == SUBSCRIBER or team:
            return await self._subscriber(account, wish, team)
        await self._check(account, Question(USE, ROLES, self._policy.home, wish.role))
        return Identity(wish.role)

    async def _set_of(self, account: Account) -> SetReference:
        """By the API server's objects, never by what the client says."""
        bound = pod_of(account)
        try:
            key = set_of(bound, await self._authority.pod(bound.key), self._policy.home)
            found = await self._authority.sample_set(key)
        except NotFound as error:
            raise Permanent("NotAnAgent", str(error)) from error
        return SetReference(key.namespace, uid_of(found))

    async def _subscriber(self, account: Account, wish: Wish, team: Team | None) -> Identity:
        """In the team that it names, when it belongs there and may watch all that the team has.

        `subscriber` needs no team: it then hears the namespaces that it asks for, or its own.
        """
        if team and not wish.namespaces:
            refused = await self._forbidden(account, self._membership(team))
            if refused is None:
                return Identity(SUBSCRIBER, team=team.name)
            if wish.role != SUBSCRIBER:
                raise _not_permitted(account, refused)
        watched = wish.namespaces or (_own_namespace(account),)
        for namespace in watched:
            await self._check(account, Question(WATCH, FACTS, namespace))
        return Identity(SUBSCRIBER, watch=Watch(frozenset(watched), queue_of(account)))

    def _membership(self, team: Team) -> tuple[Question, ...]:
        """To be in its account is to share its consumers, which a right to watch does not give."""
        member = Question(USE, TEAMS, self._policy.home, team.name)
        return member, *(Question(WATCH, FACTS, namespace) for namespace in team.namespaces or ("",))

    async def _check(self, account: Account, question: Question) -> None:
        """Raises Permanent when RBAC does not allow it."""
        if refused := await self._forbidden(account, (question,)):
            raise _not_permitted(account, refused)

    async def _forbidden(self, account: Account, questions: tuple[Question, ...]) -> Question | None:
        """The first that RBAC does not allow; None when it allows all. A team may have hundreds, so they are
        not asked one after the other."""
        first, *others = questions
        if not await self._authority.allows(account, first):
            return first
        answers = await asyncio.gather(*(self._authority.allows(account, question) for question in others))
        return next(
            (question for question, is_allowed in zip(others, answers, strict=True) if not is_allowed), None
        )


def _own_namespace(account: Account) -> str:
    """Raises Permanent: people have none."""
    if namespace := namespace_of(account):
        return namespace
    raise Permanent(
        "NotPermitted", f"{account.user} is of no team and of no namespace: connect as subscriber.<namespace>"
    )


def _check_wish(wish: Wish, team: Team | None, declared: Declared) -> None:
    """Raises Permanent for what is neither a team nor a role, and for namespaces of any but `subscriber`."""
    if team is None:
        declared.role(wish.role)
    if wish.namespaces and wish.role != SUBSCRIBER:
        raise Permanent("UnknownRole", f"{wish.role} takes no namespaces: connect as subscriber.<namespace>")


def _not_permitted(account: Account, question: Question) -> Permanent:
    where = f"namespace {question.namespace}" if question.namespace else "all namespaces"
    what = f"{question.resource}.events.paddlepaddle.org"
    what = f"{what} {question.name}" if question.name else what
    return Permanent(
        "NotPermitted", f"{account.user} may not {question.verb} {what} in {where}: no RBAC rule allows it"
    )
