"""Reads an API server's audit log: the requests of service accounts that were allowed, and those refused by
RBAC.

Two kinds of refusals do not count. A service whose release is being removed sends requests for a moment, and
an API server that has just started has no roles yet. The log also has changes of roles and bindings, so these
refusals can be detected: a refusal counts unless the right is granted at that time, or was granted until its
role or binding was deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

RBAC = "rbac.authorization.k8s.io"
EVERYWHERE = ""
"""The namespace of what a ClusterRoleBinding grants."""
_DELETES = ("delete", "deletecollection")
_CHANGES = ("create", "update", "patch", *_DELETES)

Event = Mapping[str, Any]
Name = tuple[str, str, str]
"""Plural, namespace, name."""


@dataclass(frozen=True, order=True)
class Request:
    """A request: account, verb, resource and namespace.

    `resource` includes the subresource, e.g. `pods/log`.
    """

    user: str
    group: str
    resource: str
    verb: str
    namespace: str = EVERYWHERE

    def everywhere(self) -> Request:
        """The same in all namespaces."""
        return Request(self.user, self.group, self.resource, self.verb)


@dataclass
class Requests:
    """The requests in one log."""

    allowed: set[Request] = field(default_factory=set)
    refused: set[Request] = field(default_factory=set)


def read_log(lines: Iterable[str]) -> Requests:
    """All requests for resources, those for changes of roles among them."""
    found, roles = Requests(), _Roles()
    for event in sorted(_of_interest(lines, found.allowed), key=_moment):
        if _is_change(event):
            roles.change(event)
        elif (request := _request(event)) is not None and not roles.give(request):
            found.refused.add(request)
    return found


def _of_interest(lines: Iterable[str], allowed: set[Request]) -> Iterator[Event]:
    """Changes of roles, and refusals; what was allowed is noted on the way, for there is much of it."""
    for event in _parsed(lines):
        # A quota refuses with 403, too: only the authorizer's own word counts.
        decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
        if decision == "allow" and (request := _request(event)) is not None:
            allowed.add(request)
        if decision == "forbid" or _is_change(event):
            yield event


def _parsed(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            # The last line of a server that was killed.
            continue


def _moment(event: Event) -> str:
    """When it had an effect at the earliest: the refusal that a deletion causes may be answered before it."""
    asked, answered = (str(event.get(f"{stage}Timestamp", "")) for stage in ("requestReceived", "stage"))
    return asked if _is_change(event) and event["verb"] in _DELETES else answered


def _is_change(event: Event) -> bool:
    """Whether the event is a successful change of a role or binding."""
    is_done = event.get("responseStatus", {}).get("code") in (200, 201)
    return is_done and event.get("objectRef", {}).get("apiGroup") == RBAC and event["verb"] in _CHANGES


def _request(event: Event) -> Request | None:
    user, target = event.get("user", {}).get("username", ""), event.get("objectRef", {})
    if "resource" not in target:
        return None
    resource = "/".join(name for name in (target["resource"], target.get("subresource", "")) if name)
    namespace = target.get("namespace", EVERYWHERE)
    return Request(user, target.get("apiGroup", ""), resource, event["verb"], namespace)


class _Roles:
    """Roles and bindings as they are at a point of the log, and what was granted until one was deleted."""

    def __init__(self) -> None:
        self._objects: dict[Name, Event] = {}
        self._grants: dict[Name, frozenset[Request]] = {}
        """Binding to the rights that it grants."""
        self._granted: Counter[Request] = Counter()
        """Right to the number of bindings that grant it."""
        self._lost: set[Request] = set()

    def change(self, event: Event) -> None:
        target = event["objectRef"]
        name: Name = (target["resource"], target.get("namespace", EVERYWHERE), target.get("name", ""))
        if event["verb"] in _DELETES:
            # Without a name all of the namespace.
            gone = [n for n in self._objects if n == name or (n[:2] == name[:2] and not name[2])]
            for each in gone:
                del self._objects[each]
                self._lost |= self._regrant(each)
        elif "responseObject" in event:
            self._objects[name] = event["responseObject"]
            self._regrant(name)

    def give(self, request: Request) -> bool:
        """Now, or until a deletion."""
        scopes = (request, request.everywhere())
        return any(scope in self._lost or self._granted[scope] for scope in scopes)

    def _regrant(self, changed: Name) -> set[Request]:
        """Grant what the object now grants, itself or as the role of bindings; what is granted no more."""
        bindings = [changed] if changed[0].endswith("bindings") else self._bindings_of(changed)
        before = frozenset[Request]().union(*(self._grants.get(binding, frozenset()) for binding in bindings))
        for binding in bindings:
            self._granted.subtract(self._grants.pop(binding, ()))
            if binding in self._objects:
                self._grants[binding] = frozenset(self._requests(binding))
                self._granted.update(self._grants[binding])
                self._lost -= self._grants[binding]
        return {request for request in before if not self._granted[request]}

    def _bindings_of(self, role: Name) -> list[Name]:
        return [name for name in self._objects if name[0].endswith("bindings") and self._role(name) == role]

    def _role(self, binding: Name) -> Name:
        reference = self._objects[binding]["roleRef"]
        namespace = binding[1] if reference["kind"] == "Role" else EVERYWHERE
        return f"{reference['kind'].lower()}s", namespace, reference["name"]

    def _requests(self, binding: Name) -> Iterator[Request]:
        rules = self._objects.get(self._role(binding), {}).get("rules") or ()
        for user in _accounts(self._objects[binding]):
            yield from _of_rules(user, binding[1], rules)


def _accounts(binding: Event) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        if subject["kind"] == "ServiceAccount":
            yield f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


def _of_rules(user: str, namespace: str, rules: Iterable[Event]) -> Iterator[Request]:
    for rule in rules:
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule["verbs"]:
                    yield Request(user, group, resource, verb, namespace)
