"""`docs/asyncapi.yaml` has every fact, every command and real examples, and its references lead somewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker

from paddlewheel.bus.admin.permissions import OURS, permissions_of
from paddlewheel.bus.streams import matches, stream_of
from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.gen.catalog import Fact, read
from paddlewheel.contracts.gen.documents import ASYNCAPI, PAGE
from paddlewheel.contracts.gen.protos import ROOT, build
from paddlewheel.contracts.subjects import event_subject
from paddlewheel.contracts.wire import decode

DOCUMENT: dict[str, Any] = yaml.load(ASYNCAPI.read_text(), yaml.CSafeLoader)
CATALOG = read(build(ROOT / "protos"))
FACTS = CATALOG.facts
SERVICES = {path.name for path in (ROOT / "services").iterdir()}


def walk(node: Any) -> Iterator[Any]:
    yield node
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in inner:
        yield from walk(child)


def resolve(reference: str) -> Any:
    found: Any = DOCUMENT
    assert reference.startswith("#/"), reference
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def judge(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with the value; references are to the document's own schemas."""
    validator = Draft7Validator(
        {**schema, "components": DOCUMENT["components"]}, format_checker=FormatChecker()
    )
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def message_of(fact: Fact) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["components"]["messages"][fact.shape.full_name]
    return found


def test_it_is_an_asyncapi_document() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"].keys() >= {"title", "version"}
    assert {operation["action"] for operation in DOCUMENT["operations"].values()} == {"send", "receive"}


def test_every_reference_leads_somewhere() -> None:
    references = [node["$ref"] for node in walk(DOCUMENT) if isinstance(node, dict) and "$ref" in node]
    assert references
    for reference in references:
        assert resolve(reference), reference


def test_nothing_in_it_is_unused() -> None:
    used = {node["$ref"] for node in walk(DOCUMENT) if isinstance(node, dict) and "$ref" in node}
    for group in ("schemas", "messages", "parameters", "securitySchemes"):
        for name in DOCUMENT["components"][group]:
            assert f"#/components/{group}/{name}" in used


def test_every_fact_has_one_channel_one_message_and_one_operation() -> None:
    told = [
        name.removeprefix("#/components/messages/")
        for channel in DOCUMENT["channels"].values()
        for name in (message["$ref"] for message in channel["messages"].values())
    ]
    for type_, model in EVENTS.items():
        assert told.count(type_) == 1
        address = event_subject(model, "NS", "UID").replace(".NS.UID", ".{namespace}.{uid}")
        [name] = [n for n, c in DOCUMENT["channels"].items() if c["address"] == address]
        assert sorted(DOCUMENT["channels"][name]["parameters"]) == ["namespace", "uid"]
        users = [o for o in DOCUMENT["operations"].values() if o["channel"]["$ref"] == f"#/channels/{name}"]
        assert [user["action"] for user in users] == ["send"]


def test_every_command_has_a_channel_a_receiver_and_its_reply() -> None:
    assert {c.shape.name for c in CATALOG.commands} >= {"RunSpec", "Chunk", "Rebuild"}
    for command in CATALOG.commands:
        channel = DOCUMENT["channels"][command.key]
        assert channel["address"] == command.address
        assert set(command.receivers) <= SERVICES
        operation = DOCUMENT["operations"][f"receive.{command.key}"]
        assert operation["action"] == "receive"
        assert ("reply" in operation) == (command.reply is not None)


@pytest.mark.parametrize("fact", FACTS, ids=lambda f: f.key)
def test_the_example_of_a_fact_is_a_real_message(fact: Fact) -> None:
    [example] = message_of(fact)["examples"]
    assert judge(message_of(fact)["payload"], example["payload"]) == []
    assert judge(message_of(fact)["headers"], example["headers"]) == []
    event = decode(
        example["headers"]["ce-subject"], json.dumps(example["payload"]).encode(), example["headers"]
    )
    assert type(event.data) is EVENTS[fact.shape.full_name]
    assert event.data != type(event.data)(), "an example that says nothing"


def test_the_schemas_refuse_what_our_models_never_write() -> None:
    [ended] = [f for f in FACTS if f.shape.name == "RunEnded"]
    [example] = message_of(ended)["examples"]
    for spoiled in ({"files": 5}, {"phase": "ENDED"}, {"cachedPercent": "much"}, {"runId": 7}):
        assert judge(message_of(ended)["payload"], {**example["payload"], **spoiled})
    for missing in ("ce-id", "ce-type"):
        assert judge(
            message_of(ended)["headers"], {k: v for k, v in example["headers"].items() if k != missing}
        )


@pytest.mark.parametrize("fact", FACTS, ids=lambda f: f.key)
def test_what_is_said_of_a_fact_is_so(fact: Fact) -> None:
    assert fact.stream == stream_of(event_subject(fact.shape.full_name, "ns", "u")).name
    may = permissions_of(OURS.role(fact.publisher))
    subject = event_subject(fact.shape.full_name, "ns", "u")
    assert any(matches(pattern, subject) for pattern in may.publish)
    assert not any(matches(pattern, subject) for pattern in may.publish_denied)
    assert len(fact.shape.about.split()) > 5, "a comment says what is true when the fact is told"
    assert ("Terminal" in fact.shape.about) == fact.terminal
    assert ("May be lost" in fact.shape.about) == bool(fact.lossy)


def test_the_page_has_every_fact_and_every_command() -> None:
    page = PAGE.read_text()
    addresses = [f"`{fact.address}`" for fact in FACTS]
    addresses += [f"`{command.address}`" for command in CATALOG.commands]
    headings = [f"\n### {fact.shape.name}\n" for fact in FACTS]
    assert [text for text in (*addresses, *headings) if text not in page] == []
