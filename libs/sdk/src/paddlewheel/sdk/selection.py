"""The selection of events: subjects for the server, and names of objects, by which the subscriber filters."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from pydantic import BaseModel

from paddlewheel.contracts.generated.registry import EVENTS, ROOTS
from paddlewheel.contracts.subjects import EventSubject, event_filter, event_subject, parse_event_subject
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import Event

Type = type[BaseModel] | str
"""A fact's class (`JobSucceeded`), its name, or its full name (`paddlewheel.jobs.v1.JobSucceeded`)."""

_ANY = "*"
_JOBS = "jobs"
_OURS = "pw.evt"
"""The root of the subjects that can be read. `pw.src` is the other root."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PLACES = {
    "job": ((_JOBS, _ANY), ("progress", _ANY)),
    "sample_set": (("datasets", "sampleset"), ("cache", _ANY), ("cacheprogress", _ANY)),
    "sample_job": (("datasets", "samplejob"),),
    "paddle_service": (("serving", _ANY), ("measurements", _ANY)),
}
"""Context and entity of the facts about an object of each kind."""
_OWNERS = {
    "job-controller": (_JOBS, "models", "progress"),
    "dataset-controller": ("datasets",),
    "cache-runtime": ("cache", "cacheprogress"),
    "trigger-controller": ("triggers",),
    "serving-controller": ("serving",),
    "evaluator": ("measurements",),
}
"""Publisher to the contexts of its facts."""


@dataclass(frozen=True)
class Wish:
    """The arguments by which a caller selects events.

    An empty field selects all; several objects are a union.
    """

    job: str = ""
    sample_set: str = ""
    sample_job: str = ""
    paddle_service: str = ""
    service: str = ""
    context: str | Iterable[str] = ()
    types: Type | Iterable[Type] = ()
    namespace: str = ""
    """Namespace of the objects, if no object is named."""

    def listed(self) -> Wish:
        """The same selection with tuples, which can be read several times."""
        return replace(self, context=_texts(self.context), types=_types(self.types))

    def __str__(self) -> str:
        """The parameters as text, for messages. Call it on the result of `listed`."""
        names = [(kind, getattr(self, kind)) for kind in _PLACES]
        contexts = ",".join(sorted(set(_texts(self.context))))
        types = ",".join(sorted({_full_name(type_).rpartition(".")[2] for type_ in _types(self.types)}))
        words = [
            *names, ("service", self.service), ("context", contexts), ("types", types),
            ("namespace", self.namespace),
        ]  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in words if value) or "all facts"

    @property
    def key(self) -> str:
        """The parameters as JSON.

        Servers store this text, so its form must not change. Call it on the result of `listed`.
        """
        given = asdict(self) | {
            "context": sorted(set(_texts(self.context))),
            "types": sorted({_full_name(type_).rpartition(".")[2] for type_ in _types(self.types)}),
        }
        return json.dumps({name: value for name, value in given.items() if value}, sort_keys=True)


@dataclass(frozen=True)
class Scope:
    """The facts of one entity about the objects with a namespace and a name. `*` matches any value."""

    context: str
    entity: str = _ANY
    namespace: str = _ANY
    name: str = _ANY

    def subjects(self, facts: Iterable[EventSubject]) -> Iterator[str]:
        """Filters for those of the facts that are in this scope."""
        for fact in facts:
            if fact.context == self.context and self.entity in (_ANY, fact.entity):
                yield event_filter(fact.context, fact.entity, fact.fact, self.namespace, version=fact.version)

    def holds(self, event: Event) -> bool:
        place = parse_event_subject(event.subject)
        pairs = (
            (self.context, place.context),
            (self.entity, place.entity),
            (self.namespace, place.namespace),
            (self.name, event.object.name),
        )
        return all(wanted in (_ANY, found) for wanted, found in pairs)


@dataclass(frozen=True)
class Selection:
    """The selected events."""

    subjects: tuple[str, ...]
    scopes: tuple[Scope, ...]
    job: Scope | None = None
    """The selected job, if it is selected by name with all of its facts. The server can then select them by
    uid."""

    def wants(self, event: Event) -> bool:
        """Whether the event is selected. The server selects by subject only, so names are compared here."""
        return any(scope.holds(event) for scope in self.scopes)


def select(wish: Wish) -> Selection:
    """The selection for the arguments. Raises InvalidArgument with the parameter and what to pass instead."""
    contexts = _contexts(wish)
    scopes = [scope for scope in _scopes(wish, contexts) if scope.context in contexts]
    if not scopes:
        remedy = "omit one of them"
        raise InvalidArgument("context", f"{', '.join(contexts)} has no facts about such objects", remedy)
    subjects = _subjects(scopes, wish.types)
    if not subjects:
        remedy = "select types of that context, or omit the objects"
        raise InvalidArgument("types", "no such fact exists about what the other parameters select", remedy)
    return Selection(tuple(dict.fromkeys(subjects)), tuple(scopes), None if wish.types else _job(scopes))


def _job(scopes: Iterable[Scope]) -> Scope | None:
    return next((s for s in scopes if s.context == _JOBS and _ANY not in (s.namespace, s.name)), None)


def _subjects(scopes: Iterable[Scope], types: Type | Iterable[Type]) -> Iterable[str]:
    if not types:
        return [event_filter(s.context, s.entity, namespace=s.namespace) for s in scopes]
    facts = [_fact(type_) for type_ in _types(types)]
    return [subject for scope in scopes for subject in scope.subjects(facts)]


def _scopes(wish: Wish, contexts: Iterable[str]) -> list[Scope]:
    asked = {kind: getattr(wish, kind) for kind in _PLACES if getattr(wish, kind)}
    if not asked:
        return [Scope(context, namespace=wish.namespace or _ANY) for context in contexts]
    found = []
    for kind, name in asked.items():
        namespace, name = _object(kind, name)
        found += [Scope(context, entity, namespace, name) for context, entity in _PLACES[kind]]
    return found


def _contexts(wish: Wish) -> tuple[str, ...]:
    ours = tuple(context for context, root in ROOTS.items() if root == _OURS)
    wanted = _texts(wish.context) or ours
    for context in wanted:
        if context not in ROOTS:
            raise InvalidArgument(
                "context", f"{context!r} is not a context", f"choose one of {', '.join(ours)}"
            )
        _check_readable("context", context, context)
    if not wish.service:
        return wanted
    if wish.service not in _OWNERS:
        raise InvalidArgument(
            "service", f"{wish.service!r} publishes no facts", f"choose one of {', '.join(_OWNERS)}"
        )
    return tuple(context for context in wanted if context in _OWNERS[wish.service])


def _check_readable(parameter: str, given: str, context: str) -> None:
    """Raises InvalidArgument for notifications of object stores."""
    if ROOTS[context] != _OURS:
        problem = f"{given!r} cannot be read: trigger-controller removes each notification after handling it"
        remedy = "read TriggerFired (context triggers), which names the notification, or create a Trigger"
        raise InvalidArgument(parameter, problem, remedy)


def _object(parameter: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if slash and all(part == _ANY or _NAME.fullmatch(part) for part in (namespace, name)):
        return namespace, name
    remedy = 'pass "namespace/name", for example "team-a/resnet", or "team-a/*" for all of a namespace'
    raise InvalidArgument(parameter, f"{text!r} is not the name of an object", remedy)


def _types(given: Type | Iterable[Type]) -> tuple[Type, ...]:
    """The types as a tuple. Callers may pass one or several; "" means none."""
    if isinstance(given, (str, type)):
        return (given,) if given else ()
    return tuple(given)


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,) if given else ()
    return tuple(given)


def _full_name(type_: Type) -> str:
    return type_ if isinstance(type_, str) else getattr(type_, "proto_name", type_.__name__)


def _fact(type_: Type) -> EventSubject:
    wanted = _full_name(type_)
    names = {name.rpartition(".")[2]: name for name in EVENTS}
    full = names.get(wanted, wanted)
    if full not in EVENTS:
        close = difflib.get_close_matches(wanted.rpartition(".")[2], names, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(sorted(names))}"
        raise InvalidArgument("types", f"{wanted!r} is not a fact", remedy)
    fact = parse_event_subject(event_subject(full, "any", "any"))
    _check_readable("types", wanted, fact.context)
    return fact
