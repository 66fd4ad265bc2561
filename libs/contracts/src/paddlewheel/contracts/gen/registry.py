"""Renders the registry of contexts and facts, `generated/registry.py`."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from paddlewheel.contracts.gen.protos import PACKAGE, Options, module_of, ours

RECORDS = ("Spec", "State", "Status")
"""Suffixes of records, which are not facts: RunSpec, RunState, NodeStatus."""
DEFAULT_ROOT = "pw.evt"


def facts_in(file: FileDescriptorProto, entities: list[str]) -> list[str]:
    """The names of the facts: messages whose name is an entity and a past tense, e.g. JobStarted."""
    rests = ((m.name, m.name.removeprefix(e)) for m in file.message_type for e in entities)
    return [name for name, rest in rests if rest and rest != name and rest not in RECORDS]


def render(descriptors: FileDescriptorSet) -> str:
    """The module with ENTITIES, ROOTS and EVENTS."""
    options = Options(descriptors)
    contexts = {}
    for file in ours(descriptors):
        given = options.of(file.options)
        if given.get("entities"):
            contexts[module_of(file.package)] = (
                file,
                list(given["entities"]),
                given.get("root", DEFAULT_ROOT),
            )
    return "\n".join(_lines(contexts)) + "\n"


def _lines(contexts: dict[str, tuple[FileDescriptorProto, list[str], str]]) -> Iterator[str]:
    yield "# Generated from the options in protos/ by `make gen`; do not edit."
    yield '"""Every context with its entities, and every fact."""'
    yield f"\nfrom __future__ import annotations\n\nfrom {PACKAGE} import {', '.join(contexts)}"
    yield "from paddlewheel.contracts.base import WireModel"
    named = {module.rpartition("_")[0]: value for module, value in contexts.items()}
    yield "\nENTITIES: dict[str, tuple[str, ...]] = {"
    yield from (f"    {name!r}: {tuple(entities)!r}," for name, (_, entities, _) in named.items())
    yield '}\n"""Context to its entities. The name of a fact begins with its entity."""'
    yield "\nROOTS: dict[str, str] = {"
    yield from (f"    {name!r}: {root!r}," for name, (_, _, root) in named.items())
    yield '}\n"""Context to the first two tokens of its subjects."""'
    yield "\nEVENTS: dict[str, type[WireModel]] = {"
    for module, (file, entities, _) in contexts.items():
        for fact in facts_in(file, entities):
            yield f"    {f'{file.package}.{fact}'!r}: {module}.{fact},"
    yield '}\n"""Type (proto full name) to model class, for every fact of every context."""'
