"""Authorization of one client: who it is, whether it may have the role it requests, and its permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bus_auth.domain.accounts import (
    SERVICE_ACCOUNT,
    check_token,
    namespace_of,
    queue_of,
    read_requested_role,
    rights_end,
)
from bus_auth.domain.model import Account, RequestedRole, ResourceAttributes
from bus_auth.domain.names import FACTS, ROLES, TEAMS, USE, WATCH
from bus_auth.ports import Authority
from paddlewheel.bus.admin.permissions import OURS, SUBSCRIBER, Declared
from paddlewheel.bus.admin.rights import Identity, Watch, rights
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent


@dataclass(frozen=True)
class Policy:
    """The rules by which rights are given.

    Args:
        home: namespace of the release, in which RBAC grants roles and teams.
        lifetime: seconds until a client is disconnected and must connect with a new token.
        teams: the teams of subscribers in the server's configuration.
        spread: returns a number from 0 to 1 for each client, see `rights_end`.
        declared: the roles and streams of the bus.
    """

    home: str
    lifetime: int
    teams: tuple[Team, ...]
    spread: Callable[[], float]
    declared: Declared = OURS


class Authorizer:
    """Decides about clients by reviews of the API server."""

    def __init__(self, authority: Authority, policy: Policy, clock: Clock) -> None:
        self._authority, self._policy, self._clock = authority, policy, clock

    async def authorize(self, login: Login) -> Grant:
        """The rights of the client. Raises Permanent (refused) or Retry (not known now)."""
        requested = read_requested_role(login.role)
        team = next((team for team in self._policy.teams if team.name == requested.role), None)
        _check_requested(requested, team, self._policy.declared)
        now = int(self._clock.now().timestamp())
        claims = check_token(login.token, now)
        account = await self._authority.review(login.token, claims)
        identity = await self._identify(account, requested, team)
        place, permissions = rights(identity, self._policy.declared)
        end = rights_end(account, now, self._policy.lifetime, self._policy.spread())
        return Grant(account.user, place, permissions, end)

    async def _identify(self, account: Account, requested: RequestedRole, team: Team | None) -> Identity:
        if requested.role == SUBSCRIBER or team:
            return await self._subscriber(account, requested, team)
        if not self._is_own(account, requested.role):
            await self._check(account, ResourceAttributes(USE, ROLES, self._policy.home, requested.role))
        return Identity(requested.role)

    def _is_own(self, account: Account, name: str) -> bool:
        """Whether it is the release's service account of that name, which needs no RoleBinding."""
        return account.user == f"{SERVICE_ACCOUNT}{self._policy.home}:{name}"

    async def _subscriber(self, account: Account, requested: RequestedRole, team: Team | None) -> Identity:
        """A member of the requested team, if RBAC allows the membership and to watch the team's namespaces.

        A client that requests `subscriber` needs no team. It then watches the namespaces that it requests, or
        its own.
        """
        if team and not requested.namespaces:
            refused = await self._forbidden(account, self._membership(account, team))
            if refused is None:
                return Identity(SUBSCRIBER, team=team.name)
            if requested.role != SUBSCRIBER:
                raise _not_permitted(account, refused)
        watched = requested.namespaces or (_own_namespace(account),)
        for namespace in watched:
            await self._check(account, ResourceAttributes(WATCH, FACTS, namespace))
        return Identity(SUBSCRIBER, watch=Watch(frozenset(watched), queue_of(account)))

    def _membership(self, account: Account, team: Team) -> tuple[ResourceAttributes, ...]:
        """The rights that a member of a team needs. The right to watch alone is not enough, because members
        share the consumers of the team's account."""
        watches = tuple(ResourceAttributes(WATCH, FACTS, namespace) for namespace in team.namespaces or ("",))
        if self._is_own(account, team.name):
            return watches
        return ResourceAttributes(USE, TEAMS, self._policy.home, team.name), *watches

    async def _check(self, account: Account, attributes: ResourceAttributes) -> None:
        """Raises Permanent when RBAC does not allow it."""
        if refused := await self._forbidden(account, (attributes,)):
            raise _not_permitted(account, refused)

    async def _forbidden(
        self, account: Account, all_attributes: tuple[ResourceAttributes, ...]
    ) -> ResourceAttributes | None:
        """The first that RBAC does not allow; None when it allows all. After the first, the others are
        reviewed concurrently: a team may have hundreds of namespaces."""
        first, *others = all_attributes
        if not await self._authority.allows(account, first):
            return first
        answers = await asyncio.gather(
            *(self._authority.allows(account, attributes) for attributes in others)
        )
        return next(
            (attributes for attributes, is_allowed in zip(others, answers, strict=True) if not is_allowed),
            None,
        )


def _own_namespace(account: Account) -> str:
    """The namespace of a service account. Raises Permanent for another user, which has none."""
    if namespace := namespace_of(account):
        return namespace
    raise Permanent(
        "NotPermitted",
        f"{account.user} is in no team and has no namespace of its own: connect as subscriber.<namespace>",
    )


def _check_requested(requested: RequestedRole, team: Team | None, declared: Declared) -> None:
    """Raises Permanent for an unknown name, or namespaces with another role than `subscriber`."""
    if team is None:
        declared.role(requested.role)
    if requested.namespaces and requested.role != SUBSCRIBER:
        raise Permanent(
            "UnknownRole", f"{requested.role} takes no namespaces: connect as subscriber.<namespace>"
        )


def _not_permitted(account: Account, attributes: ResourceAttributes) -> Permanent:
    where = f"namespace {attributes.namespace}" if attributes.namespace else "all namespaces"
    what = f"{attributes.resource}.events.paddlepaddle.org"
    what = f"{what} {attributes.name}" if attributes.name else what
    return Permanent(
        "NotPermitted", f"{account.user} may not {attributes.verb} {what} in {where}: no RBAC rule allows it"
    )
